"""The command line: parse, call, show, and return the exit code that says what to do next.

Exit codes: 0 complete; 1 unexpected fault; 2 bad spec, input, weights or output; 3 the spec or the
input is not the job's; 4 finished over the error budget; 5 incomplete, run the same command again.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sapiens_batch import __version__
from sapiens_batch.commands import curate, models, search
from sapiens_batch.commands.export import export
from sapiens_batch.commands.jobs import JobAddress, JobArgument, Overrides
from sapiens_batch.commands.preview import compare, preview, report
from sapiens_batch.commands.verify import errors, gc, verify
from sapiens_batch.errors import SapiensBatchError
from sapiens_batch.spec.loading import load_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sapiens_batch.driver.progress import Reporter
    from sapiens_batch.driver.run import JobSummary
    from sapiens_batch.driver.status import JobPlan
    from sapiens_batch.protocol.documents import Counts
    from sapiens_batch.records import Problem

app = typer.Typer(
    name="sapiens-batch",
    help="Label corpora of people images with Sapiens models, resumably, on Ray.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

app.add_typer(models.app, name="models")
app.add_typer(search.app, name="search")
app.command()(verify)
app.command()(gc)
app.command()(errors)
app.command()(preview)
app.command()(compare)
app.command()(report)
app.command()(curate.curate)

SpecPath = Annotated[Path, typer.Argument(metavar="SPEC", help="The job file (YAML).")]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def main() -> None:
    """Entry point: turns our errors into one message and their exit code."""
    try:
        app()
    except SapiensBatchError as error:
        Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {escape(str(error))}")
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


@app.command()
def run(
    spec: SpecPath,
    overrides: Overrides = None,
    part: Annotated[
        str | None,
        typer.Option(
            "--partition",
            metavar="I/N",
            help="Work on part I of N of the shards only, so that N drivers share the job.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a job, or resume it: the same command continues where it stopped."""
    from sapiens_batch.driver.partition import WHOLE, Partition
    from sapiens_batch.driver.run import run_job

    partition = WHOLE if part is None else Partition.parse(part)
    work = partial(run_job, load_spec(spec, overrides or ()), partition=partition)
    _finish(work, as_json)


@app.command()
def retry(
    spec: SpecPath,
    reasons: Annotated[
        str,
        typer.Option("--reason", help="Reasons, separated by commas; `decode` means all of them."),
    ],
    sample_keys: Annotated[
        list[str] | None, typer.Option("--key", help="Only the samples with these keys.")
    ] = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Label quarantined samples again, after what kept them from being labeled is mended."""
    from sapiens_batch.driver.retry import retry_job

    wanted = [reason for part in reasons.split(",") if (reason := part.strip())]
    loaded = load_spec(spec, overrides or ())
    work = partial(retry_job, loaded, reasons=wanted, sample_keys=sample_keys)
    _finish(work, as_json)


def _finish(work: Callable[[Reporter], JobSummary], as_json: bool) -> NoReturn:
    """Do a job's work, show how it ended, and exit."""
    reporter = _reporter(as_json)
    try:
        summary = work(reporter)
    finally:
        reporter.close()
    if as_json:
        print(json.dumps({"event": "summary", **_as_json(summary)}), flush=True)
    else:
        _show_summary(summary)
    raise typer.Exit(summary.exit_code)


@app.command()
def plan(spec: SpecPath, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Check a job file, its weights and its input, and show what a run would do."""
    from sapiens_batch.driver.open_job import resolve
    from sapiens_batch.driver.status import job_plan

    planned = job_plan(resolve(load_spec(spec, overrides or ())))
    if as_json:
        print(json.dumps(asdict(planned)))
        return
    console = Console(highlight=False)
    console.print(f"[bold]{planned.name}[/] → {planned.output}", soft_wrap=True)
    console.print(f"{planned.num_shards} shards, {_bytes(planned.input_bytes)}{_standing(planned)}")
    table = Table(box=None)
    for title in ("task", "checkpoint", "architecture", "view", "per", "bytes a row"):
        table.add_column(title, overflow="fold")
    for task in planned.tasks:
        note = " [yellow](random weights)[/]" if task.demo else ""
        size = _bytes(task.row_bytes)
        table.add_row(task.task, task.checkpoint + note, task.arch, task.view, task.level, size)
    console.print(table)


def _standing(planned: JobPlan) -> str:
    """What an earlier run has done of a job."""
    if not planned.started:
        return ", all to be labeled"
    left = planned.num_shards - planned.committed_shards
    parts = [f", {planned.committed_shards} committed"]
    if left:
        parts.append(f"{left} to be labeled")
    if planned.open_chunks:
        parts.append(f"{planned.open_chunks} chunks of them done")
    if planned.open_orders:
        parts.append(f"{planned.open_orders} with samples to be labeled again")
    return ", ".join(parts if left or planned.open_orders else [*parts, "nothing left to do"])


@app.command()
def status(
    job: JobArgument,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Show what a job has done so far."""
    from sapiens_batch.driver.status import job_status

    found = job_status(JobAddress.parse(job, overrides).open())
    if as_json:
        print(json.dumps({**asdict(found), "counts": found.counts.model_dump()}))
        return
    console = Console(highlight=False)
    console.print(f"[bold]{found.name}[/] in {found.output}", soft_wrap=True)
    table = _account(found.committed_shards, found.num_shards, found.counts, found.reasons)
    if found.open_shards:
        table.add_row("open shards", f"{found.open_shards}", f"{found.open_chunks} chunks labeled")
    console.print(table)
    _show_problems(console, found.problems, len(found.problems))


app.command()(export)


def _reporter(as_json: bool) -> Reporter:
    from sapiens_batch.driver.progress import JsonReporter, LogReporter, TerminalReporter

    if as_json:
        return JsonReporter()
    return TerminalReporter(Console()) if sys.stdout.isatty() else LogReporter()


def _as_json(summary: JobSummary) -> dict[str, Any]:
    values = asdict(summary)
    values["counts"] = summary.counts.model_dump()
    return {**values, "complete": summary.complete, "exit_code": summary.exit_code}


def _show_summary(summary: JobSummary) -> None:
    console = Console(highlight=False)
    if summary.complete and not summary.new_samples and not summary.new_shards:
        console.print(f"[bold]{summary.name}[/]: nothing left to do")
    elif summary.complete:
        console.print(
            f"[bold]{summary.name}[/]: complete, {summary.new_samples} samples in "
            f"{summary.elapsed_s:.1f} s"
        )
    table = _account(summary.committed_shards, summary.num_shards, summary.counts, summary.reasons)
    if summary.open_chunks:
        table.add_row("kept", f"{summary.open_chunks} chunks", "of shards that are not committed")
    console.print(table)
    _show_problems(console, summary.problems, summary.num_problems)
    console.print(f"labels in {summary.output}", soft_wrap=True)
    if summary.counts.quarantined:
        console.print(f"what is quarantined: sapiens-batch errors {summary.output}", soft_wrap=True)
    if summary.counts.samples:
        console.print(f"look at them: sapiens-batch preview {summary.output}", soft_wrap=True)
    if summary.demo:
        console.print("[yellow]demo weights: these labels are random and mean nothing[/]")
    if summary.over_budget:
        console.print(
            "[red]more samples are quarantined than the job file allows: look at `errors`, then "
            "mend them or raise the budget and run again[/]"
        )
    elif summary.in_vain:
        console.print(
            "[red]not one sample could be labeled: look at the reasons, mend the input[/]"
        )
    elif summary.in_setup:
        console.print("[red]the job cannot go on until this is mended:[/]")
    elif not summary.complete:
        stopped = f"stopped by {summary.stopped}"
        why = stopped if summary.stopped else "some chunks or shards keep failing"
        console.print(f"[red]incomplete: {why}; run the same command again to continue[/]")
    for failure in summary.failures:
        console.print(f"  {failure.stage}: {escape(failure.message)}", soft_wrap=True)


def _show_problems(console: Console, problems: Sequence[tuple[str, Problem]], number: int) -> None:
    """What was noted of shards as a whole."""
    for shard, problem in problems:
        text = f"  {shard}: {problem.reason}: {problem.message}"
        console.print(escape(text), soft_wrap=True)
    if number > len(problems):
        console.print(f"  and {number - len(problems)} more, see `status`")


def _account(committed: int, planned: int, counts: Counts, reasons: Mapping[str, int]) -> Table:
    """The account of a job: every sample is ok, empty or quarantined."""
    shown = ", ".join(f"{reason} {number}" for reason, number in reasons.items())
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_row("shards", f"{committed} of {planned} committed")
    table.add_row("samples", f"{counts.samples}")
    table.add_row("  ok", f"{counts.ok}")
    table.add_row("  empty", f"{counts.empty}", "no person in the image" if counts.empty else "")
    table.add_row("  quarantined", f"{counts.quarantined}", shown)
    table.add_row("persons", f"{counts.persons}")
    return table


def _bytes(size: int) -> str:
    """A size in decimal units with one digit."""
    if size < 1000:
        return f"{size} B"
    power = min((len(str(size)) - 1) // 3, 5)
    return f"{size / 1000**power:.1f} {'kMGTP'[power - 1]}B"
