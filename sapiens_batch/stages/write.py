"""From a labeled chunk to what is stored of it: rows of tables, rows of arrays.

Labels become bytes here; which objects they become, and what happens where two attempts meet, is
`protocol.put`. Where a later generation orders some samples of a chunk, the rows of the others come
from the commit before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from functools import partial

import numcodecs.blosc
import pyarrow as pa

from sapiens_batch.protocol import keys
from sapiens_batch.protocol.documents import Counts
from sapiens_batch.protocol.put import ChunkHeader, EncodedArray, EncodedRows, Tally, put_chunk
from sapiens_batch.protocol.receipt import Receipt, read_receipt
from sapiens_batch.records import LabelSchema, Level, TaskName
from sapiens_batch.sinks import parquet, zarr
from sapiens_batch.sinks.tables import count_statuses, encode_rows, row_schema
from sapiens_batch.stages.earlier import EarlierLabels
from sapiens_batch.stages.flow import LabeledChunk
from sapiens_batch.stages.label_rows import array_rows, images_table, persons_table, settle
from sapiens_batch.storage import Store


class ChunkWriter:
    """Writes labeled chunks of one job.

    Args:
        store: The job directory.
        schemas: Label schemas of the job.
        extra_columns: Source columns that the `images` table keeps.
        chunk_samples: Samples per chunk.
        executor: Where arrays are encoded and stored side by side; one after the other without.
    """

    def __init__(
        self,
        store: Store,
        schemas: Mapping[TaskName, LabelSchema],
        extra_columns: Sequence[str],
        chunk_samples: int,
        executor: Executor | None = None,
    ) -> None:
        self._store = store
        self._schemas = schemas
        self._chunk_samples = chunk_samples
        self._executor = executor
        labels = list(schemas.values())
        self._row_schemas = {
            level: row_schema(parquet.table_schema(level, labels, extra_columns), labels)
            for level in Level
        }

    def write(self, chunk: LabeledChunk) -> Receipt:
        """Store a chunk and its receipt; returns the receipt that counts, ours or a rival's.

        Raises:
            StorageError: The store failed; what was written is harmless.
            ProtocolError: What is taken over from the commit before is damaged.
        """
        numcodecs.blosc.use_threads = False  # chunks are encoded side by side, one core each
        header = chunk.header
        earlier = None if header.ordered is None else EarlierLabels(self._store, header)
        chunk = settle(chunk, self._schemas)
        tables = self._tables(chunk, earlier)
        statuses, reasons = count_statuses(tables[Level.IMAGE])
        counts = Counts.of(statuses, tables[Level.PERSON].num_rows)
        return put_chunk(
            self._store,
            header,
            {
                task: partial(self._encode, chunk, schema, earlier)
                for task, schema in self._schemas.items()
                if schema.array is not None and header.start < header.stop
            },
            {
                level.table: EncodedRows(encode_rows(table), table.num_rows)
                for level, table in tables.items()
                if table.num_rows or level is Level.IMAGE
            },
            Tally(counts, reasons),
            timings_s=chunk.timings_s,
            executor=self._executor,
        )

    def stored(self, header: ChunkHeader) -> Receipt | None:
        """The receipt of a chunk, where it has one.

        Raises:
            DamagedReceiptError: It is damaged.
            StorageError: The store failed.
        """
        shard_id, generation = header.shard_id, header.generation
        if not self._store.exists(keys.receipt(shard_id, header.index, generation)):
            return None
        return read_receipt(self._store, shard_id, header.index, generation)[0]

    def _encode(
        self, chunk: LabeledChunk, schema: LabelSchema, earlier: EarlierLabels | None
    ) -> EncodedArray:
        """The array object of a task."""
        assert schema.array is not None
        rows, data = array_rows(chunk, schema)
        if earlier is not None:
            rows, data = earlier.add_array_rows(schema, rows, data)
        shard_rows = self._chunk_samples * schema.array.rows_per_sample
        encoded = zarr.encode_shard(schema.array, rows, data, shard_rows)
        return EncodedArray(encoded, len(rows), len(schema.array.row_shape))

    def _tables(self, chunk: LabeledChunk, earlier: EarlierLabels | None) -> dict[Level, pa.Table]:
        """The rows of the whole chunk, by table."""
        tables: dict[Level, pa.Table] = {
            Level.IMAGE: images_table(chunk, self._schemas, self._row_schemas[Level.IMAGE]),
            Level.PERSON: persons_table(chunk, self._schemas, self._row_schemas[Level.PERSON]),
        }
        if earlier is None:
            return tables
        return {level: earlier.add_table_rows(level, table) for level, table in tables.items()}
