"""`sapiens-batch export`: labels in the formats of other tools."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from sapiens_batch.commands.jobs import AsJson, JobAddress, JobArgument
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
    from sapiens_batch.export import ExportRequest, exporter
    from sapiens_batch.export.run import run_export

    address = JobAddress.parse(job)
    request = ExportRequest(
        address.uri,
        output,
        _pairs("--set", options),
        where=where,
        select=select,
        pictures=pictures,
        part=_part(partition),
        job_options=address.storage_options,
        output_options=_pairs("--storage", storage_options),
        source_options=address.source_options,
    )
    console = Console(stderr=True, highlight=False)
    with console.status("exporting") as status:
        summary = run_export(
            exporter(format_name),
            request,
            lambda done, total: status.update(f"exported {done} of {total} shards"),
        )
    if as_json:
        print(json.dumps({"event": "summary", **asdict(summary)}))
    else:
        _show(format_name, summary)
    raise typer.Exit(0 if summary.complete else _INCOMPLETE)


def _show(format_name: str, summary: ExportSummary) -> None:
    console = Console(highlight=False)
    if not summary.complete:
        console.print(
            f"[bold]{format_name}[/]: {summary.new_shards} shards exported; the other parts are "
            f"still to run",
            soft_wrap=True,
        )
    else:
        news = "" if summary.new_shards else "nothing left to do: "
        console.print(
            f"[bold]{format_name}[/]: {news}{summary.samples} samples of {summary.num_shards} "
            f"shards, {summary.num_objects} objects, {summary.size_bytes / 1e6:.1f} MB in "
            f"{summary.output}",
            soft_wrap=True,
        )
    if summary.warning:
        console.print(f"[yellow]{summary.warning}[/]", soft_wrap=True)


def _pairs(option: str, given: Sequence[str] | None) -> dict[str, Any]:
    """Assignments as values; what stands right of `=` is YAML."""
    found = {}
    for text in given or ():
        name, separator, value = text.partition("=")
        if not separator:
            raise SpecError(f"{option} {text}: expected NAME=VALUE")
        found[name] = parse_assigned(value, f"{option} {text}")
    return found


def _part(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise SpecError(f"--partition {text}: expected I/N with I from 1 to N, such as 1/4")
    return int(match[1]), int(match[2])
