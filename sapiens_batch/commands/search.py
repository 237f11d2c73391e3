"""`search build` and `search query`: find samples that look alike."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from sapiens_batch.commands.address import JobAddress, JobArgument, Overrides
from sapiens_batch.commands.console import AsJson, console, print_json, shown
from sapiens_batch.errors import InputError
from sapiens_batch.storage import open_store

if TYPE_CHECKING:
    import pyarrow as pa

    from sapiens_batch.search import Segment
    from sapiens_batch.storage import Store

app = typer.Typer(help="Find samples that look alike, by their embeddings.", no_args_is_help=True)

IndexOption = Annotated[
    str | None,
    typer.Option("--index", metavar="URI", help="Index folder; default: `index` in the job."),
]


@app.command()
def build(
    job: JobArgument,
    index: IndexOption = None,
    column: Annotated[str, typer.Option(help="Column of `images` with vectors.")] = "embedding",
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Build the index of a job's embeddings, or add what was committed since."""
    from sapiens_batch.labelset import LabelSet
    from sapiens_batch.search import build_index

    address = JobAddress.parse(job, overrides)
    store = index_folder(address, index)
    started = time.perf_counter()
    new: list[Segment] = []
    view = build_index(LabelSet(address.open()), store, column=column, on_segment=new.append)
    elapsed_s = time.perf_counter() - started
    num_new = sum(segment.num_rows for segment in new)
    if as_json:
        values = {"uri": store.uri, "rows": view.num_rows, "new_rows": num_new}
        values |= {"recall": view.recall, "segments": len(view.segments), "elapsed_s": elapsed_s}
        print_json(values)
        return
    out = console()
    out.print(f"[bold]{view.num_rows}[/] vectors of {view.dimension} in {shown(store.uri)}")
    for segment in new:
        how = "exact"
        if segment.kind == "approximate":
            how = f"recall@10 {segment.recall:.3f}, {segment.probes} of {segment.num_cells} cells"
        out.print(f"  new: {segment.num_rows} vectors of {len(segment.shards)} shards, {how}")
    rate = f" ({num_new / elapsed_s:.0f} vectors/s)" if num_new else ""
    out.print(f"{num_new} new vectors in {elapsed_s:.1f} s{rate}" if new else "up to date")


@app.command()
def query(
    job: JobArgument,
    key: Annotated[str | None, typer.Option(help="Find what is like this sample.")] = None,
    image: Annotated[str | None, typer.Option(help="Find what is like this image file.")] = None,
    vector: Annotated[
        str | None, typer.Option(help="Find what is near the vectors of a .npy file.")
    ] = None,
    num: Annotated[int, typer.Option("--num", "-n", min=1, help="How many samples.")] = 10,
    index: IndexOption = None,
    keys: Annotated[
        Path | None, typer.Option(help="Write the keys: .parquet (for `select`) or .json.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write an HTML sheet of the pictures.")] = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Find the samples that are most like a sample, an image or a vector."""
    from sapiens_batch.labelset import LabelSet
    from sapiens_batch.search import SearchIndex, vector_of_file, vector_of_image
    from sapiens_batch.search.build import opened_view

    if sum(one is not None for one in (key, image, vector)) != 1:
        raise InputError("give one of --key, --image and --vector")
    address = JobAddress.parse(job, overrides)
    manifest = address.open()
    labels = LabelSet(manifest)
    store = index_folder(address, index)
    found = SearchIndex(store, opened_view(labels, store))
    if key is not None:
        result = found.search_like(labels.sample(key), num)
    elif vector is not None:
        result = found.search(vector_of_file(vector), num)
    else:
        query_vector = vector_of_image(labels.job, str(image), column=found.view.column)
        result = found.search(query_vector, num)
    if keys is not None:
        _write_keys(result, keys)
    if html is not None:
        from sapiens_batch.search.sheet import write_sheet

        title, options = f"like {key or image or vector}", address.source_options
        write_sheet(manifest, labels, result, html, title=title, source_options=options)
    _show(result, as_json)


def index_folder(address: JobAddress, uri: str | None) -> Store:
    """The folder of an index: given, or `index` in the job directory."""
    return address.folder("index") if uri is None else open_store(uri, address.storage_options)


def _write_keys(result: pa.Table, path: Path) -> None:
    from sapiens_batch.sinks import parquet

    if path.suffix == ".json":
        path.write_text(json.dumps(result["key"].to_pylist(), ensure_ascii=False, indent=1) + "\n")
    elif path.suffix == ".parquet":
        path.write_bytes(parquet.encode(result))
    else:
        raise InputError(f"--keys {path}: give a name that ends with .parquet or .json")


def _show(result: pa.Table, as_json: bool) -> None:
    rows = result.to_pylist()
    if as_json:
        print_json(rows)
        return
    table = Table("rank", "similarity", "key", "shard", "index", box=None)
    for row in rows:
        similarity = f"{row['similarity']:.4f}"
        shard, index = row["shard_id"][:12], str(row["index"])
        table.add_row(str(row["rank"] + 1), similarity, shown(row["key"]), shard, index)
    console().print(table)
