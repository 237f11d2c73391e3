"""An index opened for queries: the neighbours of vectors over all segments.

Building is left to `build`, making vectors of keys and images to `query`. Equal queries give equal
results: neighbours of the same similarity come in the order of their rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from sapiens_batch.errors import InputError
from sapiens_batch.labelset import SampleLabels
from sapiens_batch.records import Array
from sapiens_batch.search import cells
from sapiens_batch.search.documents import REMEDY, IndexView, Segment, existing_view
from sapiens_batch.search.vectors import PLACE_SCHEMA, Vectors, as_unit
from sapiens_batch.sinks import parquet
from sapiens_batch.storage import Store, open_store

KEPT_BYTES: Final = 8_000_000_000
"""Segments stay in memory while the whole index is no larger; else one is in memory at a time."""

RESULT_SCHEMA: Final = pa.schema(
    [
        pa.field("query", pa.int64(), nullable=False),
        pa.field("rank", pa.int64(), nullable=False),
        *PLACE_SCHEMA,
        pa.field("similarity", pa.float32(), nullable=False),
    ]
)


def open_index(uri: str, storage_options: Mapping[str, Any] | None = None) -> SearchIndex:
    """Open the index of a folder.

    Raises:
        StorageError: There is no index.
        ProtocolError: It is damaged.
    """
    store = open_store(uri, storage_options)
    return SearchIndex(store, existing_view(store))


class SearchIndex:
    """An index as of one build, its `view`."""

    def __init__(self, store: Store, view: IndexView) -> None:
        self.view = view
        self._store = store
        self._keeps = sum(one.vectors.size_bytes for one in view.segments) <= KEPT_BYTES
        self._kept: dict[str, tuple[pa.Table, Any]] = {}

    def __len__(self) -> int:
        return self.view.num_rows

    def search(self, vectors: Array, num: int = cells.NUM_NEIGHBOURS) -> pa.Table:
        """The most similar samples of each query.

        Args:
            vectors: (q, C) queries of any length, or one of shape (C,).
            num: How many samples for each.

        Returns:
            `query` (row of `vectors`), `rank` (from 0), `key`, `shard_id`, `index`, `similarity`
            (cosine), ordered by query and rank.

        Raises:
            InputError: The vectors are not of the index's kind, or have no direction.
            DependencyError: faiss is not installed.
        """
        queries = self._checked(vectors)
        similarities, rows = self.neighbours(queries, num)
        query, rank = np.nonzero(rows >= 0)
        places = self.places().take(rows[query, rank])
        columns: dict[str, Any] = {
            "query": query,
            "rank": rank,
            **{name: places[name] for name in PLACE_SCHEMA.names},
            "similarity": similarities[query, rank],
        }
        return pa.table(columns, schema=RESULT_SCHEMA)

    def search_like(self, sample: SampleLabels, num: int = cells.NUM_NEIGHBOURS) -> pa.Table:
        """The samples that are most like a sample, without itself; as `search`.

        Raises:
            InputError: The sample has no vector.
            DependencyError: faiss is not installed.
        """
        row = sample.row
        vector = row.get(self.view.column)
        if vector is None:
            raise InputError(
                f"sample {row['key']!r} has no {self.view.column}: its status is {row['status']} "
                f"({row['reason'] or 'no reason'}); search by another sample"
            )
        found = self.search(vector, num + 1)
        itself = (ds.field("shard_id") == row["shard_id"]) & (ds.field("index") == row["index"])
        others = found.filter(~itself).slice(0, num)
        return others.set_column(1, "rank", pa.array(np.arange(others.num_rows))).cast(found.schema)

    def neighbours(self, queries: Array, num: int) -> tuple[Array, Array]:
        """The most similar rows of each query, best first.

        Args:
            queries: (q, C) float32 of unit length.
            num: How many.

        Returns:
            (q, num) similarities and (q, num) rows of `places`; -inf and -1 where there are fewer.
        """
        # nobody is near, until a segment knows better
        similarities = [np.full((len(queries), num), -np.inf, np.float32)]
        rows = [np.full((len(queries), num), -1, np.int64)]
        for start, _, index in self._segments():
            found, where = cells.nearest(index, queries, num)
            similarities.append(found)
            rows.append(np.where(where < 0, -1, where + start))
        near, where = np.hstack(similarities), np.hstack(rows)
        best = np.lexsort((where, -near), axis=1)[:, :num]
        return np.take_along_axis(near, best, axis=1), np.take_along_axis(where, best, axis=1)

    def places(self) -> pa.Table:
        """`key`, `shard_id`, `index` of every row, in row order."""
        tables = [self._places(segment) for segment in self.view.segments]
        return pa.concat_tables([PLACE_SCHEMA.empty_table(), *tables])

    def vectors(self) -> Iterator[tuple[int, Vectors]]:
        """(number of the first row, vectors) of each segment, one in memory at a time."""
        for start, places, index in self._segments():
            yield start, Vectors(places, cells.stored_vectors(index))

    def _segments(self) -> Iterator[tuple[int, pa.Table, Any]]:
        start = 0
        for segment in self.view.segments:
            yield start, *self._load(segment)
            start += segment.num_rows

    def _load(self, segment: Segment) -> tuple[pa.Table, Any]:
        if segment.segment_id in self._kept:
            return self._kept[segment.segment_id]
        data = segment.vectors.read(self._store, remedy=REMEDY)
        index = cells.from_bytes(data, segment.probes, segment.vectors.key)
        loaded = (self._places(segment), index)
        if self._keeps:
            self._kept[segment.segment_id] = loaded
        return loaded

    def _places(self, segment: Segment) -> pa.Table:
        if segment.segment_id in self._kept:
            return self._kept[segment.segment_id][0]
        return parquet.decode(segment.places.read(self._store, remedy=REMEDY)).cast(PLACE_SCHEMA)

    def _checked(self, vectors: Array) -> Array:
        queries = np.atleast_2d(np.asarray(vectors))
        if queries.ndim != 2 or queries.shape[1] != self.view.dimension:
            raise InputError(
                f"queries of shape {np.shape(vectors)}: this index of {self.view.column!r} takes "
                f"vectors of {self.view.dimension} numbers"
            )
        unit, usable = as_unit(queries)
        if not usable.all():
            raise InputError(
                f"query {int(np.argmin(usable))} is zero or not finite: it has no direction"
            )
        return unit
