"""Labels of an earlier generation, for the samples that a later one does not label again.

Rows and array rows are copied from what the newest commit names, so that a generation describes its
whole shard and readers need one commit only. Nothing is written here, and no commit changes (I2).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sapiens_batch.errors import ProtocolError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.documents import StoredObject
from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.records import Array, LabelSchema, Level
from sapiens_batch.sinks import parquet, zarr
from sapiens_batch.storage import MissingObjectError, Store


def newest_commit(store: Store, shard_id: str, *, before: int) -> Commit:
    """The newest commit of a shard below a generation.

    Raises:
        ProtocolError: There is none, though samples of it were ordered again.
    """
    for generation in range(before - 1, -1, -1):
        key = keys.commit(shard_id, generation)
        try:
            return Commit.from_bytes(store.read(key), key=key)
        except MissingObjectError:
            continue
    raise ProtocolError(
        f"shard {shard_id}: generation {before} labels some of its samples again, but no earlier "
        "one is committed; run `verify`"
    )


class EarlierLabels:
    """Labels of some samples as a commit has them.

    Args:
        store: The job directory.
        commit: The commit.
        samples: Indices of the samples in the shard, sorted.
    """

    def __init__(self, store: Store, commit: Commit, samples: Sequence[int]) -> None:
        self._store = store
        self._commit = commit
        self._samples = list(samples)

    def table(self, level: Level) -> pa.Table | None:
        """Rows of the samples in a table, in order; None where the shard has no rows in it."""
        found = self._commit.tables.get(level.table)
        if found is None or not self._samples:
            return None  # what is not needed may be damaged: a repair labels it again
        rows = parquet.decode(self._store.read(found.key))
        return rows.filter(pc.is_in(rows["index"], pa.array(self._samples, pa.int64())))

    def add_table_rows(self, level: Level, table: pa.Table) -> pa.Table:
        """A table of other samples with the rows of these in between, by index and person."""
        earlier = self.table(level)
        if earlier is None or earlier.num_rows == 0:
            return table
        names = ("index",) if level is Level.IMAGE else ("index", "person")
        merged = pa.concat_tables([table, earlier.cast(table.schema)])
        ordered = merged.sort_by([(name, "ascending") for name in names])
        return ordered.replace_schema_metadata(table.schema.metadata)

    def add_rows(
        self, schema: LabelSchema, header: ChunkHeader, rows: Sequence[int], data: Array
    ) -> tuple[list[int], Array]:
        """Array rows of a chunk with those of these samples added.

        Args:
            schema: A task with an array.
            header: The chunk.
            rows: Rows in the chunk's outer shard that are labeled anew.
            data: (n, *row_shape) labels for them.

        Raises:
            ProtocolError: The commit names an object that is damaged.
        """
        found = self._chunk_object(schema, header)
        if schema.array is None or found is None or not self._samples:
            return list(rows), data
        shard_rows = self._commit.arrays[schema.task].shard_rows
        encoded = self._store.read(found.key)
        per_sample = schema.array.rows_per_sample
        first = [(sample - header.start) * per_sample for sample in self._samples]
        wanted = [row for start in first for row in range(start, start + per_sample)]
        try:
            kept = dict(zarr.decode_rows(schema.array, encoded, shard_rows, wanted))
        except ValueError as error:
            raise ProtocolError(f"{found.key}: {error}; run `verify --repair`") from error
        if not kept:
            return list(rows), data
        return [*rows, *kept], np.concatenate([data, np.stack(list(kept.values()))])

    def _chunk_object(self, schema: LabelSchema, header: ChunkHeader) -> StoredObject | None:
        array = self._commit.arrays.get(schema.task)
        for found in array.chunks if array is not None else ():
            name = keys.parse(found.key)
            if name is not None and name.chunk == header.index:
                return found
        return None
