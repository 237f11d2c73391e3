"""`sapiens-batch models`: which checkpoints there are, and what a file really is.

`list` reads a table, shows the terms of the licences, and asks nothing of the network; `check`
finds a checkpoint as a job would, acceptance of its licence included, and compares it with its
architecture.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from sapiens_batch.commands.console import AsJson, console, print_json, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sapiens_batch.models.catalog import Release
    from sapiens_batch.models.weights import Checkpoint

app = typer.Typer(help="Released checkpoints, and checking a weights file.", no_args_is_help=True)


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """List the released checkpoints with size and memory, and what their licences forbid."""
    from sapiens_batch.models.catalog import releases
    from sapiens_batch.models.licences import LICENCES

    if as_json:
        found = [
            {
                "id": release.id,
                "architecture": release.arch,
                "tasks": release.tasks,
                "parameters": release.parameters,
                "file_gb": round(release.file_gb, 2),
                "memory_float32_gb": round(release.memory_float32_gb, 2),
                "memory_bfloat16_gb": round(release.memory_bfloat16_gb, 2),
                "licence": release.licence.key,
            }
            for release in releases()
        ]
        print_json(found)
        return
    out = console()
    for licence in LICENCES:
        out.print(f"[bold]{licence.name}[/] ({licence.key}) {licence.url}", soft_wrap=True)
        out.print(licence.terms, soft_wrap=True)
        out.print(_table([one for one in releases() if one.licence is licence]))
    out.print(
        "float32 and bfloat16: estimated memory for one view at a time. The encoder of each serves "
        "`features` and `embedding` too. Weights are not bundled: they are downloaded at first "
        "use, after you accept their licence.",
        soft_wrap=True,
    )


def _table(listed: Sequence[Release]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("checkpoint", "head", "size", "file", "float32", "bfloat16"):
        table.add_column(name, no_wrap=True)
    for release in listed:
        table.add_row(
            release.id,
            release.head or "-",
            f"{release.parameters / 1e9:.2f} B",
            f"{release.file_gb:.1f} GB",
            f"{release.memory_float32_gb:.1f} GB",
            f"{release.memory_bfloat16_gb:.1f} GB",
        )
    return table


@app.command()
def check(
    checkpoint: Annotated[
        str, typer.Argument(metavar="PATH|ID", help="Weights file, folder, hub id, or `demo`.")
    ],
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit of the hub repository.")
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option("--accept-licence", metavar="KEY", help="A licence that you accept."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare a weights file with its architecture and say what it is."""
    from sapiens_batch.models.catalog import unknown_release
    from sapiens_batch.models.licences import accepted_by, licence_of_id
    from sapiens_batch.models.weights import resolve_checkpoint

    terms = licence_of_id(checkpoint)
    if terms is not None:
        hint = unknown_release(checkpoint)
        accepted_by(terms, checkpoint, accept or (), ask="option", hint=hint)
    facts = _facts(resolve_checkpoint(checkpoint, revision))
    if as_json:
        print_json(facts)
        return
    del facts["encoder"]
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), shown(_shown(value)))
    console(soft_wrap=True).print(table)


def _facts(checkpoint: Checkpoint) -> dict[str, Any]:
    from sapiens_batch.models.weights import count_parameters

    config = checkpoint.config
    tensors, parameters = count_parameters(config)
    return {
        "checkpoint": checkpoint.id,
        "file": None if checkpoint.path is None else str(checkpoint.path),
        "revision": checkpoint.revision,
        "architecture": config.encoder.name,
        "head": None if config.head is None else config.head.kind,
        "outputs": None if config.head is None else config.head.out_channels,
        "image_size": list(config.image_size),
        "tensors": tensors,
        "parameters": parameters,
        "licence": checkpoint.licence,
        "weights_sha256": checkpoint.weights_sha256,
        "encoder_sha256": checkpoint.encoder_sha256,
        "digest": checkpoint.digest,
        "encoder": asdict(config.encoder),
    }


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return " x ".join(map(str, value)) if isinstance(value, list) else str(value)
