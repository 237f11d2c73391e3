"""`sapiens-batch verify`, `gc`, `errors`: what a job has stored, looked at without running it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from sapiens_batch.commands.address import JobAddress, JobArgument, Overrides
from sapiens_batch.commands.console import AsJson, console, print_json, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sapiens_batch.labelset.quarantine import Quarantined
    from sapiens_batch.protocol.manifest import Manifest
    from sapiens_batch.protocol.orders import RelabelOrder
    from sapiens_batch.protocol.runs import FailureGroup
    from sapiens_batch.records import Shard
    from sapiens_batch.verify import Finding, Garbage, Report

SHOWN = 20


def verify(
    job: JobArgument,
    sample: Annotated[
        float,
        typer.Option(
            min=0.0, max=1.0, help="Share of the objects to read; sizes are always checked."
        ),
    ] = 1.0,
    compare_input: Annotated[
        bool, typer.Option("--input", help="List the input too, and show how it differs.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Order what is damaged to be labeled again by `run`.")
    ] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Check a job from storage alone: every object, row and count.

    Exit codes: 0 whole; 1 damaged; 3 the input changed; 5 incomplete but sound.
    """
    from sapiens_batch.verify import check_job, order_repairs

    address = JobAddress.parse(job, overrides)
    manifest = address.open()
    source = _listed_input(manifest, address) if compare_input else None
    report = check_job(manifest, sample_fraction=sample, source=source)
    orders, beyond = order_repairs(manifest, report) if repair else ([], list(report.findings))
    if as_json:
        ordered = [order.model_dump(mode="json") for order in orders]
        print_json({**report.to_json(), "repairs": ordered})
    else:
        _show_report(report)
        _show_findings(report, orders, beyond, repair=repair)
    raise typer.Exit(report.exit_code)


def gc(
    job: JobArgument,
    delete: Annotated[bool, typer.Option("--delete", help="Remove it; else it is shown.")] = False,
    grace_hours: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Younger objects stay: a running job may need them. "
            "At least 1 where a job is not complete.",
        ),
    ] = 24.0,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Show or remove objects that no reader and no running job needs."""
    from sapiens_batch.verify import collect_garbage, find_garbage

    manifest = JobAddress.parse(job, overrides).open()
    look = collect_garbage if delete else find_garbage
    younger: list[Garbage] = []
    found = look(manifest, grace_s=grace_hours * 3600, on_younger=younger.append)
    objects, sizes, examples = _tally(found)
    younger_bytes = sum(one.info.size_bytes for one in younger)
    if as_json:
        values = {"deleted": delete, "objects": objects, "size_bytes": sizes, "examples": examples}
        stays = {"objects": len(younger), "size_bytes": younger_bytes}
        print_json({**values, "younger": stays})
        return
    out = console(soft_wrap=True)
    verb = "removed" if delete else "would be removed"
    table = Table("what", verb, "bytes", box=None)
    for standing in sorted(objects):
        table.add_row(standing, f"{objects[standing]}", f"{sizes[standing]}")
    out.print(table if objects else "nothing to remove")
    for key in examples:
        out.print(f"  {shown(key)}")
    if (num_more := sum(objects.values()) - len(examples)) > 0:
        out.print(f"  and {num_more} more")
    if younger:
        out.print(
            f"{len(younger)} objects ({younger_bytes} bytes) that nothing needs are younger than "
            f"{max(grace_hours, 1):g} hours and stay: a running job may need them; see "
            "--grace-hours"
        )
    if objects and not delete:
        out.print("run again with --delete to remove it")


def errors(
    job: JobArgument,
    reason: Annotated[
        list[str] | None,
        typer.Option(help="Only this reason, or all that start with it (`decode`)."),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Samples to list.")] = SHOWN,
    traces: Annotated[
        bool, typer.Option("--traces", help="Show what failed in the last runs, with tracebacks.")
    ] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Count quarantined samples by reason, and list them with their keys.

    A reason that no quarantined sample has ends with exit code 2.
    """
    from sapiens_batch.labelset import quarantined
    from sapiens_batch.labelset.quarantine import check_asked, matches
    from sapiens_batch.protocol.runs import last_failures, shard_keys

    manifest = JobAddress.parse(job, overrides).open()
    check_asked(manifest, reasons=reason)
    counts: Counter[str] = Counter()
    for shard in manifest.summaries():
        counts.update({name: n for name, n in shard.reasons.items() if matches(name, reason)})
    samples = list(islice(quarantined(manifest, reasons=reason), limit))
    failures = last_failures(manifest.store) if traces else []
    if as_json:
        values = {"reasons": dict(counts), "samples": [asdict(one) for one in samples]}
        more = {"failures": [asdict(one) for one in failures]} if traces else {}
        print_json({**values, **more})
        return
    _show_quarantined(counts, samples)
    if traces:
        _show_failures(failures, shard_keys(manifest, {one.shard_id for one in failures}))


def _show_quarantined(counts: Counter[str], samples: list[Quarantined]) -> None:
    out = console(soft_wrap=True)
    if not counts:
        out.print("no quarantined samples")
        return
    table = Table("reason", "samples", box=None)
    for name, number in counts.most_common():
        table.add_row(name, f"{number}")
    out.print(table)
    for one in samples:
        where = f"{one.shard_key} #{one.index} {one.key}"
        out.print(f"  {shown(where)}: {one.reason}: {shown(one.message)}")
    if len(samples) < counts.total():
        out.print(f"  and {counts.total() - len(samples)} more; see --limit")


def _show_failures(failures: list[FailureGroup], names: dict[str, str]) -> None:
    """What failed, most frequent first: how often, when, the newest of them, its traceback."""
    out = console(soft_wrap=True)
    if not failures:
        out.print("no failures in the last runs")
    for one in failures:
        when = one.first if one.num_failures == 1 else f"{one.first} to {one.last}"
        out.print(f"[bold]{shown(one.stage)}[/] failed {one.num_failures} times, {shown(when)}")
        out.print(f"  {shown(one.message, lines=True)}")
        if one.shard_id:
            chunk = "" if one.chunk is None else f", chunk {one.chunk}"
            out.print(f"  in {shown(names.get(one.shard_id, one.shard_id))}{chunk}")
        for text in one.trace.splitlines():
            out.print(f"    {shown(text)}")


def _listed_input(manifest: Manifest, address: JobAddress) -> Iterator[Shard]:
    """The input of a job as it is now."""
    from sapiens_batch.sources import make_source
    from sapiens_batch.sources.lookup import source_spec

    spec = source_spec(manifest.job, address.source_options)
    return islice(make_source(spec).plan(), spec.limit)


def _show_report(report: Report) -> None:
    out = console(soft_wrap=True)
    out.print(f"[bold]{shown(report.name)}[/] in {shown(report.output)}")
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_row("shards", f"{report.committed_shards} of {report.num_shards} committed")
    table.add_row("samples", f"{report.counts.samples}")
    table.add_row("objects read", f"{report.checked_objects}", f"{report.checked_bytes} bytes")
    if report.open_orders:
        table.add_row("to label again", f"{report.open_orders} shards", "`run` does it")
    for standing, pile in sorted(report.orphans.items()):
        table.add_row(f"not named: {standing}", f"{pile.objects}", f"{pile.size_bytes} bytes")
    out.print(table)
    for key in report.missing_shards[:SHOWN]:
        out.print(f"  missing: {shown(key)}")
    if len(report.missing_shards) > SHOWN:
        out.print(f"  and {len(report.missing_shards) - SHOWN} more missing")
    if report.drift is not None:
        for what in ("new", "changed", "missing"):
            for key in getattr(report.drift, what)[:SHOWN]:
                out.print(f"  input {what}: {shown(key)}")


def _show_findings(
    report: Report, orders: list[RelabelOrder], beyond: list[Finding], *, repair: bool
) -> None:
    out = console(soft_wrap=True)
    for finding in report.findings[:SHOWN]:
        where = f"{finding.fault} {finding.key}: {finding.message}"
        out.print(f"  [red]{shown(where)}[/]")
    if len(report.findings) > SHOWN:
        out.print(f"  and {len(report.findings) - SHOWN} more; see --json")
    if not report.damaged:
        out.print("[green]sound[/]: everything that is stored is what it should be")
    elif repair:
        out.print(f"{len(orders)} shards are ordered to be labeled again: use `run`")
        for finding in beyond:
            out.print(f"  cannot be mended by labeling again: {shown(finding.key)}")
    else:
        out.print("[red]damaged[/]: `verify --repair` orders it to be labeled again")


def _tally(garbage: Iterator[Garbage]) -> tuple[dict[str, int], dict[str, int], list[str]]:
    """Objects and bytes by standing, and some keys."""
    objects: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    examples: list[str] = []
    for one in garbage:
        objects[one.standing] += 1
        sizes[one.standing] += one.info.size_bytes
        if len(examples) < SHOWN:
            examples.append(one.info.key)
    return dict(objects), dict(sizes), examples
