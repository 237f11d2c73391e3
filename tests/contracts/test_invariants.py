"""Invariants are cited by number; each number that is cited is defined, once, in one place."""

from __future__ import annotations

import re
from pathlib import Path

REPO = Path(__file__).parents[2]
DEFINED = re.compile(r"^- \*\*(I\d+)\*\* ", re.MULTILINE)
CITED = re.compile(r"\b(I\d{1,2})\b(?!\.)")
TRACKED = ("sapiens_batch", "tests", "benchmarks", "docs")


def cited() -> dict[str, set[str]]:
    """Files by the invariants that they name."""
    found: dict[str, set[str]] = {}
    for folder in TRACKED:
        for path in (REPO / folder).rglob("*"):
            if path.suffix in (".py", ".md"):
                for number in CITED.findall(path.read_text()):
                    found.setdefault(number, set()).add(str(path.relative_to(REPO)))
    return found


def test_every_invariant_that_is_cited_is_defined_once() -> None:
    defined = DEFINED.findall((REPO / "docs/architecture.md").read_text())
    assert defined == [f"I{number}" for number in range(1, 11)]
    assert cited().keys() - set(defined) == set()


def test_no_invariant_is_defined_for_nobody() -> None:
    in_code = {
        number
        for number, files in cited().items()
        if any(file.startswith("sapiens_batch/") for file in files)
    }
    assert in_code == {f"I{number}" for number in range(1, 11)}
