"""Labels of an earlier generation, for the samples of a chunk that are not labeled again.

Rows and array rows are copied from what the newest commit names, so that a chunk is written whole.
Whatever is copied was checked against that commit (I8); nothing is written here, and no commit
changes (I2).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sapiens_batch.errors import ProtocolError
from sapiens_batch.protocol.earlier import newest_commit, read_base
from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.records import Array, LabelSchema, Level
from sapiens_batch.sinks import parquet, zarr
from sapiens_batch.storage import Store


class EarlierLabels:
    """Labels of the samples of a chunk that were not ordered.

    Args:
        store: The job directory.
        header: The chunk, with the samples that were ordered.

    Raises:
        ProtocolError: No generation before is committed.
    """

    def __init__(self, store: Store, header: ChunkHeader) -> None:
        ordered = header.ordered or frozenset()
        self._store, self._header = store, header
        self._commit = newest_commit(store, header.shard_id, before=header.generation)
        self._samples = sorted(set(range(header.start, header.stop)) - ordered)

    def add_table_rows(self, level: Level, table: pa.Table) -> pa.Table:
        """The rows of the ordered samples with those of the others in between, in order.

        Raises:
            ProtocolError: The commit names a table that is damaged.
        """
        found = self._commit.tables.get(level.table)
        if found is None or not self._samples:
            return table  # what is not needed may be damaged: a repair labels it again
        rows = parquet.decode(read_base(self._store, found))
        kept = rows.filter(pc.is_in(rows["index"], pa.array(self._samples, pa.int64())))
        merged = pa.concat_tables([table, kept.select(table.column_names).cast(table.schema)])
        names = ("index",) if level is Level.IMAGE else ("index", "person")
        return merged.sort_by([(name, "ascending") for name in names])

    def add_array_rows(
        self, schema: LabelSchema, rows: Sequence[int], data: Array
    ) -> tuple[list[int], Array]:
        """Array rows of the ordered samples with those of the others added.

        Args:
            schema: A task with an array.
            rows: Rows in the chunk's outer shard that are labeled anew.
            data: (n, *row_shape) labels for them.

        Raises:
            ProtocolError: The commit names an object that is damaged.
        """
        array = self._commit.arrays.get(schema.task)
        found = None if array is None else array.by_chunk().get(self._header.index)
        if schema.array is None or array is None or found is None or not self._samples:
            return list(rows), data
        encoded = read_base(self._store, found)
        per_sample = schema.array.rows_per_sample
        first = [(sample - self._header.start) * per_sample for sample in self._samples]
        wanted = [row for start in first for row in range(start, start + per_sample)]
        try:
            kept = dict(zarr.decode_rows(schema.array, encoded, array.shard_rows, wanted))
        except ValueError as error:
            raise ProtocolError(f"{found.key}: {error}; run `verify --repair`") from error
        if not kept:
            return list(rows), data
        return [*rows, *kept], np.concatenate([data, np.stack(list(kept.values()))])
