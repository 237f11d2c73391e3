"""Brace expansion as in bash: `{000..999}`, `{0..10..2}`, `{a..f}`, `{a,b}`, nested and joined.

Braces that are not of these forms stay as they are. Whether the resulting names exist is for
`storage.inputs` to find out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from sapiens_batch.errors import InputError

MAX_EXPANSIONS = 10_000_000
"""More names than this are a typing mistake, and would fill the driver's memory."""

_NUMBERS = re.compile(r"^(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?$")
_LETTERS = re.compile(r"^([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?\d+))?$")


def expand_braces(pattern: str) -> list[str]:
    """Every name that the pattern stands for, in the order of its alternatives.

    Raises:
        InputError: The pattern stands for more than `MAX_EXPANSIONS` names.
    """
    parts = _parts(pattern)
    count = 1
    for alternatives in parts:
        count *= len(alternatives)
    if count > MAX_EXPANSIONS:
        raise InputError(
            f"{pattern!r} expands to {count} names, more than {MAX_EXPANSIONS}: "
            "use a glob or an @file instead"
        )
    return ["".join(combination) for combination in product(*parts)]


def constant_prefix(pattern: str) -> str:
    """The part of the pattern before its first group that expands."""
    for start, _, body in _groups(pattern):
        if _alternatives(body) is not None:
            return pattern[:start]
    return pattern


def _parts(pattern: str) -> list[list[str]]:
    parts: list[list[str]] = []
    position = 0
    for start, stop, body in _groups(pattern):
        alternatives = _alternatives(body)
        if alternatives is None:
            alternatives = ["{" + inner + "}" for inner in expand_braces(body)]
        parts += [[pattern[position:start]], alternatives]
        position = stop
    return [*parts, [pattern[position:]]]


def _groups(pattern: str) -> Iterator[tuple[int, int, str]]:
    """Outermost balanced groups as (start, stop, body); an unbalanced `{` is plain text."""
    start = pattern.find("{")
    while start >= 0:
        stop = _closing(pattern, start)
        if stop is None:
            start = pattern.find("{", start + 1)
            continue
        yield start, stop, pattern[start + 1 : stop - 1]
        start = pattern.find("{", stop)


def _closing(pattern: str, start: int) -> int | None:
    depth = 0
    for position in range(start, len(pattern)):
        depth += {"{": 1, "}": -1}.get(pattern[position], 0)
        if depth == 0:
            return position + 1
    return None


def _alternatives(body: str) -> list[str] | None:
    if numbers := _NUMBERS.match(body):
        return _number_range(*numbers.groups())
    if letters := _LETTERS.match(body):
        first, last, step = letters.groups()
        return [chr(code) for code in _steps(ord(first), ord(last), step)]
    choices = _split(body)
    if len(choices) < 2:
        return None
    return [name for choice in choices for name in expand_braces(choice)]


def _number_range(first: str, last: str, step: str | None) -> list[str]:
    padded = any(re.match(r"-?0\d", bound) for bound in (first, last))
    width = max(len(first), len(last)) if padded else 0
    steps = _steps(int(first), int(last), step)
    if len(steps) > MAX_EXPANSIONS:
        raise InputError(
            f"'{{{first}..{last}}}' expands to {len(steps)} names, more than {MAX_EXPANSIONS}: "
            "use a glob or an @file instead"
        )
    return [f"{number:0{width}d}" for number in steps]


def _steps(first: int, last: int, step: str | None) -> range:
    size = abs(int(step)) if step else 1
    size = size or 1
    return range(first, last + 1, size) if first <= last else range(first, last - 1, -size)


def _split(body: str) -> list[str]:
    """Split at the commas that are outside inner groups."""
    choices = [""]
    depth = 0
    for letter in body:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            choices.append("")
        else:
            choices[-1] += letter
    return choices
