"""Text of strangers made fit for a terminal: the one place where console output is disarmed.

Keys, messages and file names come from corpora. A control or bidi character in them could clear the
screen, set the window's title or reverse what stands behind it. Rich's own markup is left to the
commands.
"""

from __future__ import annotations


def printable(text: str, *, lines: bool = False) -> str:
    r"""A text with what does not print as itself written out, as `\x1b` or `\u202e`.

    Args:
        text: Anything.
        lines: Whether line ends stay: for messages of our own that have several lines.
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or (lines and one == "\n") else _named(one) for one in text
    )


def _named(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()
