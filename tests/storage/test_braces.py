"""Brace expansion."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapiens_batch.errors import InputError
from sapiens_batch.storage.braces import constant_prefix, expand_braces


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("plain", ["plain"]),
        ("{008..011}", ["008", "009", "010", "011"]),
        ("{8..11}", ["8", "9", "10", "11"]),
        ("{0..10..5}", ["0", "5", "10"]),
        ("{3..1}", ["3", "2", "1"]),
        ("{-01..1}", ["-01", "000", "001"]),
        ("{a..c}", ["a", "b", "c"]),
        ("x{a,b}y", ["xay", "xby"]),
        ("{a,b{1..2}}/{c,}", ["a/c", "a/", "b1/c", "b1/", "b2/c", "b2/"]),
        ("{single}", ["{single}"]),
        ("{x{1,2}}", ["{x1}", "{x2}"]),
        ("{", ["{"]),
        ("{a,b", ["{a,b"]),
        ("{a{b,c}", ["{ab", "{ac"]),
        ("{}", ["{}"]),
    ],
)
def test_expands_as_bash_does(pattern: str, expected: list[str]) -> None:
    assert expand_braces(pattern) == expected


@settings(max_examples=12, deadline=None)
@given(pattern=st.text(alphabet="{},ab", min_size=1, max_size=9))
def test_agrees_with_bash_on_any_mix_of_braces(pattern: str) -> None:
    if pattern.startswith("}") or "{}" in pattern:
        return
    result = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {pattern}"], capture_output=True, text=True, check=True
    )
    by_bash = [name for name in result.stdout.split("\n") if name]
    assert [name for name in expand_braces(pattern) if name] == by_bash


def test_too_many_names_are_refused() -> None:
    for pattern in ("{0..99999999}", "{0..9999}{0..9999}"):
        with pytest.raises(InputError, match="more than 10000000"):
            expand_braces(pattern)


def test_the_constant_part_ends_at_the_first_group_that_expands() -> None:
    assert constant_prefix("s3://b/{x}/a-{0..9}.tar") == "s3://b/{x}/a-"
    assert constant_prefix("s3://b/a.tar") == "s3://b/a.tar"
