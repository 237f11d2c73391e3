"""`run`, `retry`, `plan`, `status`: label a corpus, and see how far that is."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.table import Table

from sapiens_batch.commands.address import JobAddress, JobArgument, Overrides
from sapiens_batch.commands.console import (
    AsJson,
    Verbose,
    console,
    print_json,
    show_log,
    shown,
    size_text,
)
from sapiens_batch.spec.loading import load_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sapiens_batch.driver.progress import Reporter
    from sapiens_batch.driver.run import JobSummary
    from sapiens_batch.driver.status import JobStatus, RunStatus
    from sapiens_batch.records import Problem

SHOWN = 5
"""Problems of shards, and chunks in flight; --json has all."""

SpecPath = Annotated[Path, typer.Argument(metavar="SPEC", help="The job file (YAML).")]


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
    verbose: Verbose = 0,
    as_json: AsJson = False,
) -> None:
    """Run a job, or resume it: the same command continues where it stopped."""
    from sapiens_batch.driver.partition import WHOLE, Partition
    from sapiens_batch.driver.run import run_job

    show_log(verbose)
    partition = WHOLE if part is None else Partition.parse(part)
    work = partial(run_job, load_spec(spec, overrides or ()), partition=partition)
    _finish(work, as_json)


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
    verbose: Verbose = 0,
    as_json: AsJson = False,
) -> None:
    """Label quarantined samples again, after what kept them from being labeled is mended."""
    from sapiens_batch.driver.retry import retry_job

    show_log(verbose)
    wanted = [reason for part in reasons.split(",") if (reason := part.strip())]
    loaded = load_spec(spec, overrides or ())
    work = partial(retry_job, loaded, reasons=wanted, sample_keys=sample_keys)
    _finish(work, as_json)


def plan(spec: SpecPath, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Check a job file, its weights and its input, and show what a run would do."""
    from sapiens_batch.driver.open_job import resolve
    from sapiens_batch.driver.status import job_plan

    planned = job_plan(resolve(load_spec(spec, overrides or ())))
    if as_json:
        print_json(planned.to_json())
        return
    out = console()
    out.print(f"[bold]{shown(planned.name)}[/] → {shown(planned.output)}", soft_wrap=True)
    standing = _standing(planned.num_shards, planned.status)
    out.print(f"{planned.num_shards} shards, {size_text(planned.input_bytes)}{standing}")
    table = Table(box=None)
    for title in ("task", "checkpoint", "architecture", "view", "per", "bytes a row"):
        table.add_column(title, overflow="fold")
    for task in planned.tasks:
        checkpoint = shown(task.checkpoint)
        note = " [yellow](random weights)[/]" if task.demo else ""
        size = size_text(task.row_bytes)
        table.add_row(task.task, checkpoint + note, task.arch, task.view, task.level, size)
    out.print(table)


def _standing(num_shards: int, found: JobStatus | None) -> str:
    """What earlier runs have done of a job."""
    if found is None:
        return ", all to be labeled"
    left = num_shards - found.committed_shards
    parts = [f", {found.committed_shards} committed"]
    if left:
        parts.append(f"{left} to be labeled")
    if found.open_chunks:
        parts.append(f"{found.open_chunks} chunks of them done")
    if found.waiting_shards:
        parts.append(f"{found.waiting_shards} with samples to be labeled again")
    return ", ".join(parts if left or found.waiting_shards else [*parts, "nothing left to do"])


def status(job: JobArgument, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Show what a job has done so far, and how its last run ended or what it is doing."""
    from dataclasses import asdict

    from sapiens_batch.driver.status import job_status, last_runs

    manifest = JobAddress.parse(job, overrides).open()
    found, runs = job_status(manifest), last_runs(manifest)
    if as_json:
        print_json({**found.to_json(), "last_runs": [asdict(one) for one in runs]})
        return
    out = console(soft_wrap=True)
    out.print(f"[bold]{shown(found.name)}[/] in {shown(found.output)}")
    table = _account(found)
    if found.open_shards or found.waiting_shards:
        chunks = f"{found.open_chunks} chunks labeled"
        table.add_row("open shards", f"{found.open_shards}", chunks)
    if found.waiting_shards:
        table.add_row("to label again", f"{found.waiting_shards} shards", "`run` does it")
    out.print(table)
    _show_problems(found.problems, len(found.problems))
    for one in runs:
        _show_run(one)


def _show_run(one: RunStatus) -> None:
    how = {
        "ended": f"exit code {one.exit_code}{', ' if one.why else ''}{one.why}",
        "died": f"died, no word since {one.last_word}",
        "running": f"running, last word {one.last_word}",
    }[one.standing]
    part = "" if one.partition in ("", "1/1") else f", part {one.partition}"
    out = console(soft_wrap=True)
    out.print(shown(f"last run: {one.began} on {one.host}{part}: {how}"))
    if one.exit_code == 0:
        return
    if one.samples_per_s is not None:
        out.print(f"  {one.samples_per_s:g} samples/s")
    for key, chunk in one.in_flight[:SHOWN]:
        out.print(f"  in flight: {shown(key)}, {'reading' if chunk is None else f'chunk {chunk}'}")
    if len(one.in_flight) > SHOWN:
        out.print(f"  and {len(one.in_flight) - SHOWN} more, see --json")


def _finish(work: Callable[[Reporter], JobSummary], as_json: bool) -> NoReturn:
    """Do a job's work, show how it ended, and exit."""
    reporter = _reporter(as_json)
    try:
        summary = work(reporter)
    finally:
        reporter.close()
    if as_json:
        print_json({"event": "summary", **summary.to_json()})
    else:
        _show_summary(summary)
    raise typer.Exit(summary.exit_code)


def _reporter(as_json: bool) -> Reporter:
    from sapiens_batch.driver.progress import JsonReporter, LogReporter, TerminalReporter

    if as_json:
        return JsonReporter()
    return TerminalReporter(console()) if sys.stdout.isatty() else LogReporter()


def _show_summary(summary: JobSummary) -> None:
    found, out = summary.status, console(soft_wrap=True)
    name, output, counts = shown(found.name), shown(found.output), found.counts
    if found.complete and not summary.new_samples and not summary.new_shards:
        out.print(f"[bold]{name}[/]: nothing left to do")
    elif found.complete:
        done = f"{summary.new_samples} samples in {summary.elapsed_s:.1f} s"
        out.print(f"[bold]{name}[/]: complete, {done}")
    table = _account(found)
    if found.open_chunks:
        table.add_row("kept", f"{found.open_chunks} chunks", "of shards that are not committed")
    out.print(table)
    _show_problems(found.problems, SHOWN)
    out.print(f"labels in {output}")
    if counts.quarantined:
        out.print(f"what is quarantined: sapiens-batch errors {output}")
    if counts.samples:
        out.print(f"look at them: sapiens-batch preview {output}")
    if summary.demo:
        out.print("[yellow]demo weights: these labels are random and mean nothing[/]")
    if (why := _why_not(summary)) is not None:
        out.print(f"[red]{why}[/]")
    for failure in summary.failures:
        out.print(f"  {shown(f'{failure.stage}: {failure.message}', lines=True)}")
    if summary.failures:
        out.print(f"with their tracebacks: sapiens-batch errors --traces {output}")


def _why_not(summary: JobSummary) -> str | None:
    """Why a run did not end well; None where it did."""
    if summary.over_budget:
        return (
            "more samples are quarantined than the job file allows: look at `errors`, then mend "
            "them or raise the budget and run again"
        )
    if summary.in_vain:
        return "not one sample could be labeled: look at the reasons, mend the input"
    if summary.in_setup:
        return "the job cannot go on until this is mended:"
    if summary.status.complete:
        return None
    stopped = f"stopped by {summary.stopped}"
    why = stopped if summary.stopped else "some chunks or shards keep failing"
    return f"incomplete: {why}; run the same command again to continue"


def _show_problems(problems: Sequence[tuple[str, Problem]], most: int) -> None:
    """What was noted of shards as a whole."""
    out = console(soft_wrap=True)
    for shard, problem in problems[:most]:
        out.print(f"  {shown(f'{shard}: {problem.reason}: {problem.message}')}")
    if len(problems) > most:
        out.print(f"  and {len(problems) - most} more, see `status`")


def _account(found: JobStatus) -> Table:
    """The account of a job: every sample is ok, empty or quarantined."""
    counts = found.counts
    reasons = ", ".join(f"{reason} {number}" for reason, number in found.reasons.items())
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_row("shards", f"{found.committed_shards} of {found.num_shards} committed")
    table.add_row("samples", f"{counts.samples}")
    table.add_row("  ok", f"{counts.ok}")
    table.add_row("  empty", f"{counts.empty}", "no person in the image" if counts.empty else "")
    table.add_row("  quarantined", f"{counts.quarantined}", shown(reasons))
    table.add_row("persons", f"{counts.persons}")
    return table
