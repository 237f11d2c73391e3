"""The command line: the table of commands, and the exit code that says what to do next.

Exit codes: 0 complete; 1 unexpected fault; 2 bad spec, input, weights or output; 3 the spec or the
input is not the job's; 4 finished over the error budget; 5 incomplete, run the same command again.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sapiens_batch import __version__
from sapiens_batch.commands import curate, models, search
from sapiens_batch.commands.console import console, shown
from sapiens_batch.commands.export import export
from sapiens_batch.commands.jobs import plan, retry, run, status
from sapiens_batch.commands.preview import compare, preview, report
from sapiens_batch.commands.verify import errors, gc, verify
from sapiens_batch.errors import SapiensBatchError

if TYPE_CHECKING:
    from collections.abc import Callable

COMMANDS: tuple[Callable[..., None], ...] = (
    plan,
    run,
    status,
    errors,
    retry,
    verify,
    gc,
    preview,
    compare,
    report,
    export,
    curate.curate,
)
GROUPS = {"search": search.app, "models": models.app}

app = typer.Typer(
    name="sapiens-batch",
    help="Label corpora of people images with Sapiens models, resumably, on Ray.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for _command in COMMANDS:
    app.command()(_command)
for _name, _group in GROUPS.items():
    app.add_typer(_group, name=_name)


def main() -> None:
    """Entry point: turns our errors into one message and their exit code."""
    try:
        app()
    except SapiensBatchError as error:
        text = shown(error, lines=True)
        console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {text}")
        sys.exit(error.exit_code)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
) -> None:
    """Options of the program itself; its help is that of `app`."""
