"""Object names from keys."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sapiens_batch.export.samples import UniqueNames, safe_name
from sapiens_batch.storage.base import check_key


def test_plain_keys_stay_as_they_are() -> None:
    assert safe_name("train/000012_a-b") == "train/000012_a-b"


def test_dots_and_other_letters_are_written_out() -> None:
    assert safe_name("a.b.jpg") == "a~2e~b~2e~jpg"
    assert safe_name("été 1") == "~e9~t~e9~~20~1"
    assert safe_name("../x") == "~2e~~2e~/x"


def test_a_key_that_is_no_relative_path_is_one_part() -> None:
    assert safe_name("/abs//x") == "~2f~abs~2f~~2f~x"


def test_the_second_of_equal_keys_gets_its_index() -> None:
    names = UniqueNames()
    assert [names.name("k", index) for index in (3, 4)] == ["k", "k~4"]


@settings(max_examples=200)
@given(st.lists(st.text(max_size=300), max_size=4, unique=True))
def test_names_are_valid_short_and_as_different_as_keys(keys: list[str]) -> None:
    found = [safe_name(key) for key in keys]
    assert len(set(found)) == len(keys)
    for name in found:
        assert check_key(name) == name
        assert "." not in name
        assert all(len(part.encode()) <= 160 for part in name.split("/"))
