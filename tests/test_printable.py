"""Text of strangers cannot work a terminal."""

from __future__ import annotations

import pytest

from sapiens_batch.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a/ü/漢字 1.jpg", "a/ü/漢字 1.jpg"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\u202etxt.exe\u2066", r"\u202etxt.exe\u2066"),
        ("\x9b31m\x7f", r"\x9b31m\x7f"),
        ("one\r\ntwo\tthree", r"one\r\ntwo\tthree"),
        ("broken \udc80", r"broken \udc80"),
    ],
)
def test_what_does_not_print_as_itself_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert shown.encode()


def test_line_ends_of_our_own_messages_stay() -> None:
    assert printable("first\n  \x1bsecond", lines=True) == "first\n  \\x1bsecond"
