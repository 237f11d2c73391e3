"""What the pages for users print as code: fenced blocks of README.md and docs/*.md, and commands.

A block that cannot run in the tests has `<!-- not run: what it needs -->` above it, which Markdown
viewers do not show.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from tests.conftest import REPO

PAGES = (REPO / "README.md", *sorted((REPO / "docs").glob("*.md")))

_BLOCK = re.compile(r"(?:<!-- not run: (.+) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        language: What stands behind the fence, or "".
        text: Its lines.
        needs: What it would need to run, or None where it runs.
    """

    language: str
    text: str
    needs: str | None


def blocks(markdown: str, language: str | None = None) -> list[Block]:
    """The blocks of a page or a part of one, in order; those of one language, or all."""
    found = [Block(name, text, needs or None) for needs, name, text in _BLOCK.findall(markdown)]
    return [block for block in found if language in (None, block.language)]


def section(page: Path, heading: str) -> str:
    """The part of a page under a heading of the second level."""
    _, found, rest = page.read_text().partition(f"\n## {heading}\n")
    assert found, f"{page.name} has no section {heading!r}"
    return rest.partition("\n## ")[0]


def commands(markdown: str) -> Iterator[list[str]]:
    """Arguments of every `sapiens-batch` command in the blocks, as a shell would pass them."""
    for block in blocks(markdown):
        for line in block.text.replace("\\\n", " ").splitlines():
            if line.startswith("sapiens-batch "):
                words = shlex.split(line, comments=True)[1:]
                yield list(takewhile(lambda word: word != ">", words))
