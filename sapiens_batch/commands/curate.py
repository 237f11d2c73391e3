"""`curate`: choose samples by a condition on their labels, and write the selection."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from sapiens_batch.commands.address import JobAddress, JobArgument, Overrides
from sapiens_batch.commands.console import AsJson, console, print_json, shown
from sapiens_batch.commands.search import IndexOption, index_folder
from sapiens_batch.errors import SpecError


def curate(
    job: JobArgument,
    output: Annotated[
        str,
        typer.Argument(metavar="OUTPUT", help="Selection file: .parquet, or .npy for uids."),
    ],
    recipe: Annotated[Path | None, typer.Option(help="Recipe file (YAML).")] = None,
    where: Annotated[
        str | None, typer.Option(help="SQL condition; default: status = 'ok'.")
    ] = None,
    near_duplicates: Annotated[
        float | None,
        typer.Option(metavar="SIMILARITY", help="Keep one of samples at least so similar."),
    ] = None,
    clusters: Annotated[
        int | None, typer.Option(help="Balance over so many clusters of embeddings.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Samples of the balanced selection.")] = None,
    limit: Annotated[int | None, typer.Option(help="Random sample of at most so many.")] = None,
    seed: Annotated[int | None, typer.Option(help="Decides clusters and random samples.")] = None,
    index: IndexOption = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Choose samples by their labels and write a selection that `run` and `export` accept."""
    from sapiens_batch.curate import load_recipe, save_selection, select
    from sapiens_batch.curate.recipe import parse_recipe
    from sapiens_batch.labelset import LabelSet

    values = {} if recipe is None else load_recipe(recipe).model_dump(exclude_unset=True)
    given = {"where": where, "limit": limit, "seed": seed}
    values |= {name: value for name, value in given.items() if value is not None}
    if near_duplicates is not None:
        values["near_duplicates"] = {"similarity": near_duplicates}
    if (clusters is None) is not (samples is None):
        raise SpecError("--clusters and --samples go together: give both or none")
    if clusters is not None:
        values["balance"] = {"clusters": clusters, "samples": samples}
    address = JobAddress.parse(job, overrides)
    chosen = select(LabelSet(address.open()), parse_recipe(values), index_folder(address, index))
    saved = save_selection(chosen, output, address.storage_options)
    if as_json:
        print_json({"uri": saved, **chosen.made})
    else:
        _show(saved, chosen.made)


def _show(uri: str, made: Any) -> None:
    table = Table(show_header=False, box=None, padding=(0, 2))
    for name, number in made["counts"].items():
        table.add_row(name.replace("_", " "), str(number))
    table.add_row("selection", shown(uri))
    out = console()
    out.print(table)
    if made["repeated_keys"]:
        out.print(
            f"[yellow]{made['repeated_keys']} keys belong to several samples: `source.select` "
            "takes all of them[/]"
        )
