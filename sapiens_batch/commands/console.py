"""How commands show things: text of strangers, sizes, JSON, and the log.

Whatever a corpus, a job directory or an exception says goes through `shown`, which leaves it
neither control of the terminal nor rich's markup.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console
from rich.markup import escape

from sapiens_batch.printable import printable

AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Verbose = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        envvar="SAPIENS_BATCH_VERBOSE",
        show_default=False,
        help="Show the log on standard error; twice for details.",
    ),
]


def console(*, soft_wrap: bool = False, stderr: bool = False) -> Console:
    """A console that adds no colours of its own; with `soft_wrap` lines stay whole."""
    return Console(highlight=False, soft_wrap=soft_wrap, stderr=stderr)


def shown(text: object, *, lines: bool = False) -> str:
    """Text of others for a console.

    Args:
        text: Anything.
        lines: As for `printable`.
    """
    return escape(printable(str(text), lines=lines))


def size_text(size_bytes: int) -> str:
    """A size in decimal units with one digit."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    power = min((len(str(size_bytes)) - 1) // 3, 5)
    return f"{size_bytes / 1000**power:.1f} {'kMGTP'[power - 1]}B"


def print_json(values: Any) -> None:
    """Print one line of JSON, in ASCII."""
    print(json.dumps(values), flush=True)


def show_log(verbosity: int) -> None:
    """Print the package's log on standard error: nothing, what happens (1), or details (2)."""
    logger = logging.getLogger("sapiens_batch")
    if verbosity and not any(isinstance(one, _LogHandler) for one in logger.handlers):
        logger.addHandler(_LogHandler())
        logger.setLevel(logging.DEBUG if verbosity > 1 else logging.INFO)


class _LogHandler(logging.StreamHandler[TextIO]):
    """Writes to what standard error is at that moment: a live bar replaces it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    @property
    def stream(self) -> TextIO:  # type: ignore[override]  # an attribute in the base class
        return sys.stderr

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), lines=True)
