"""Carry out a recipe: condition, then near-duplicates, then a balanced or random sample.

Each step looks only at what the step before left. Samples keep their stored order.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pyarrow as pa

from sapiens_batch.curate.balance import balanced, clusters
from sapiens_batch.curate.duplicates import NUM_LINKS, components, links, representatives
from sapiens_batch.curate.recipe import Recipe
from sapiens_batch.curate.selection import Selection
from sapiens_batch.curate.tables import columns, connect
from sapiens_batch.errors import SpecError
from sapiens_batch.labelset import LabelSet
from sapiens_batch.records import Array
from sapiens_batch.search import SearchIndex, build_index
from sapiens_batch.spec.mistakes import did_you_mean
from sapiens_batch.storage import Store, open_store
from sapiens_batch.storage.arrow import read_error


def select(labels: LabelSet, recipe: Recipe, index_store: Store | None = None) -> Selection:
    """Choose samples of a job.

    The search index in `index_store` is brought up to date where the recipe needs embeddings; None
    builds one in memory.

    Raises:
        SpecError: The condition is no SQL or names what the job does not have.
        InputError: The recipe needs embeddings and the job has none.
        DependencyError: duckdb or faiss is not installed.
    """
    chosen = matching(labels, recipe.where)
    counts = {"committed": labels.images.count_rows(), "matching": chosen.num_rows}
    made: dict[str, Any] = {}
    if recipe.needs_embeddings:
        with _index_folder(index_store) as store:
            index = SearchIndex(store, build_index(labels, store, column=recipe.column))
            chosen = _by_embedding(chosen, index, recipe, counts)
        made["index"] = {"rows": len(index), "recall": index.view.recall, "links": NUM_LINKS}
    if recipe.limit is not None and chosen.num_rows > recipe.limit:
        rng = np.random.default_rng(recipe.seed)
        chosen = chosen.take(np.sort(rng.choice(chosen.num_rows, recipe.limit, replace=False)))
    counts["selected"] = chosen.num_rows
    made |= _provenance(labels, recipe, chosen, counts)
    return Selection(chosen.drop_columns(["num_pixels"]), made)


def matching(labels: LabelSet, where: str) -> pa.Table:
    """`key`, `shard_id`, `index`, `num_pixels` of the samples that meet a SQL condition, in order.

    Raises:
        SpecError: The condition is no SQL or names what the job does not have.
        ProtocolError: A table is damaged.
        DependencyError: duckdb is not installed.
    """
    connection = connect(labels, where)
    import duckdb

    query = (
        'SELECT key, shard_id, "index", height::BIGINT * width AS num_pixels FROM samples '
        f'WHERE ({where}) ORDER BY shard_id, "index"'
    )
    try:
        if len(connection.extract_statements(query)) != 1:
            raise SpecError(f"where: {where!r} is more than one condition")
        found: pa.Table = connection.sql(query).to_arrow_table()
    except duckdb.Error as error:
        for table in (labels.images, labels.persons):
            if (damage := read_error(table, error)) is not None:
                raise damage from error
        raise SpecError(f"where: {where!r} {_fault(error, labels)}") from error
    finally:
        connection.close()
    return found


def _fault(error: Exception, labels: LabelSet) -> str:
    """What DuckDB says about a condition, without the statement that it stands in."""
    message = str(error).splitlines()[0].partition("LINE ")[0].strip()
    unknown = re.search(r'(?:column|alias) "([^"]+)"', message) if "not found" in message else None
    if unknown is not None:
        names = columns(labels)
        hint = did_you_mean(unknown[1], names)
        quotes = "" if hint else " (text stands in 'single quotes')."
        return f"names no column {unknown[1]!r}{hint or quotes} There are {', '.join(names)}"
    if re.search(r'at or near "(\)|ORDER)"|TUPLE', message) or "at end of input" in message:
        return "is no SQL condition: it ends too early, or its brackets do not match"
    return f"cannot be evaluated: {message}"


@contextmanager
def _index_folder(store: Store | None) -> Iterator[Store]:
    """The folder itself, or one in memory that is emptied afterwards."""
    if store is not None:
        yield store
        return
    temporary = open_store(f"memory://{uuid.uuid4().hex}")
    try:
        yield temporary
    finally:
        for info in list(temporary.list("")):
            temporary.delete(info.key)


def _by_embedding(
    chosen: pa.Table, index: SearchIndex, recipe: Recipe, counts: dict[str, int]
) -> pa.Table:
    rows = _index_rows(index, chosen)
    if recipe.near_duplicates is not None:
        chosen, rows = _without_duplicates(chosen, rows, index, recipe.near_duplicates.similarity)
        counts["without_near_duplicates"] = chosen.num_rows
    if recipe.balance is not None:
        chosen = _balanced(chosen, rows, index, recipe)
        counts["balanced"] = chosen.num_rows
    return chosen


def _index_rows(index: SearchIndex, chosen: pa.Table) -> Array:
    """(n,) row of the index of each chosen sample, -1 where it has no embedding."""
    places = index.places().select(["shard_id", "index"])
    places = places.append_column("row", pa.array(np.arange(places.num_rows)))
    numbered = chosen.select(["shard_id", "index"]).append_column(
        "position", pa.array(np.arange(chosen.num_rows))
    )
    joined = numbered.join(places, ["shard_id", "index"], join_type="left outer")
    found = joined.sort_by("position")["row"].to_numpy(zero_copy_only=False)
    rows: Array = np.where(np.isnan(found), -1, found).astype(np.int64)
    return rows


def _without_duplicates(
    chosen: pa.Table, rows: Array, index: SearchIndex, similarity: float
) -> tuple[pa.Table, Array]:
    position = np.full(len(index), -1)
    position[rows[rows >= 0]] = np.flatnonzero(rows >= 0)
    pairs = position[links(index, similarity)]
    pairs = pairs[(pairs >= 0).all(axis=1)]
    groups = np.where(rows >= 0, components(len(rows), pairs), -1)
    kept, sizes = representatives(groups, chosen)
    table = chosen.take(kept).append_column("near_duplicates", pa.array(sizes, pa.int64()))
    return table, rows[kept]


def _balanced(chosen: pa.Table, rows: Array, index: SearchIndex, recipe: Recipe) -> pa.Table:
    """An even sample of those that have an embedding."""
    assert recipe.balance is not None
    embedded = np.flatnonzero(rows >= 0)
    wanted = rows[embedded]
    by_row = np.argsort(wanted)
    found = clusters(
        _Batches(index, wanted[by_row]), len(wanted), recipe.balance.clusters, recipe.seed
    )
    cluster_of = np.empty(len(wanted), np.int64)
    cluster_of[by_row] = found
    taken = balanced(cluster_of, recipe.balance.samples, recipe.seed)
    table = chosen.take(embedded[taken])
    return table.append_column("cluster", pa.array(cluster_of[taken]))


class _Batches:
    """Vectors of some rows of an index, segment by segment; may be walked over again."""

    def __init__(self, index: SearchIndex, rows: Array) -> None:
        self._index = index
        self._rows = rows

    def __iter__(self) -> Iterator[Array]:
        for start, segment in self._index.vectors():
            stop = start + len(segment.values)
            inside = self._rows[(self._rows >= start) & (self._rows < stop)]
            yield segment.values[inside - start]


def _provenance(
    labels: LabelSet, recipe: Recipe, chosen: pa.Table, counts: dict[str, int]
) -> dict[str, Any]:
    visible = [f"{one.shard_id}.{one.generation}" for one in labels.shards.values()]
    repeated = sum(number > 1 for number in Counter(chosen["key"].to_pylist()).values())
    return {
        "recipe": recipe.model_dump(mode="json"),
        "job": labels.job.name,
        "spec_digest": labels.job.spec_digest,
        "num_shards": len(visible),
        "shards_sha256": hashlib.sha256("\n".join(sorted(visible)).encode()).hexdigest(),
        "counts": counts,
        # `source.select` selects by key: with repeated keys it takes more than was chosen
        "repeated_keys": repeated,
        "versions": {name: _version(name) for name in ("sapiens-batch", "duckdb", "faiss-cpu")},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
