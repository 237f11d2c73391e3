"""`sapiens-batch export`: labels in the formats of other tools."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapiens_batch.commands.address import JobAddress, JobArgument
from sapiens_batch.commands.console import AsJson, console, print_json, shown, size_text
from sapiens_batch.errors import SpecError
from sapiens_batch.spec.yaml_file import parse_assigned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sapiens_batch.export import ExportSummary

_INCOMPLETE = 5

Pairs = list[str] | None


def export(
    format_name: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            help="coco, fiftyone, huggingface, webdataset, clip-retrieval, datacomp, png, ply or "
            "croissant.",
        ),
    ],
    job: JobArgument,
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="A folder for the export.")],
    options: Annotated[
        Pairs, typer.Option("--set", metavar="OPTION=VALUE", help="An option of the format.")
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="Filter on images: \"num_persons >= 1 AND status = 'ok'\".")
    ] = None,
    select: Annotated[
        str | None, typer.Option(help="Only samples that this file lists (Parquet or .npy).")
    ] = None,
    pictures: Annotated[
        bool | None, typer.Option("--pictures/--no-pictures", help="Take the photos along.")
    ] = None,
    partition: Annotated[
        str, typer.Option(metavar="I/N", help="Export part I of N, so that N processes share.")
    ] = "1/1",
    storage_options: Annotated[
        Pairs,
        typer.Option(
            "--storage", metavar="NAME=VALUE", help="What OUTPUT's storage needs, for fsspec."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a job's labels for another tool; the same command continues an interrupted export."""
    from sapiens_batch.driver.partition import Partition
    from sapiens_batch.export import ExportRequest, exporter
    from sapiens_batch.export.run import run_export

    address, part = JobAddress.parse(job), Partition.parse(partition)
    request = ExportRequest(
        address.uri,
        output,
        _pairs("--set", options),
        where=where,
        select=select,
        pictures=pictures,
        part=(part.number, part.count),
        job_options=address.storage_options,
        output_options=_pairs("--storage", storage_options),
        source_options=address.source_options,
    )
    out = console(stderr=True)
    with out.status("exporting") as status:
        summary = run_export(
            exporter(format_name),
            request,
            lambda done, total: status.update(f"exported {done} of {total} shards"),
        )
    if as_json:
        print_json({"event": "summary", **asdict(summary)})
    else:
        _show(format_name, summary)
    raise typer.Exit(0 if summary.complete else _INCOMPLETE)


def _show(format_name: str, summary: ExportSummary) -> None:
    out = console()
    if not summary.complete:
        out.print(
            f"[bold]{format_name}[/]: {summary.new_shards} shards exported; the other parts are "
            f"still to run",
            soft_wrap=True,
        )
    else:
        news = "" if summary.new_shards else "nothing left to do: "
        out.print(
            f"[bold]{format_name}[/]: {news}{summary.samples} samples of {summary.num_shards} "
            f"shards, {summary.num_objects} objects, {size_text(summary.size_bytes)} in "
            f"{shown(summary.output)}",
            soft_wrap=True,
        )
    if summary.warning:
        out.print(f"[yellow]{shown(summary.warning)}[/]", soft_wrap=True)


def _pairs(option: str, given: Sequence[str] | None) -> dict[str, Any]:
    """Assignments as values; what stands right of `=` is YAML."""
    found = {}
    for text in given or ():
        name, separator, value = text.partition("=")
        if not separator:
            raise SpecError(f"{option} {text}: expected NAME=VALUE")
        found[name] = parse_assigned(value, f"{option} {text}")
    return found
