"""From a labeled chunk to durable objects: array objects, table parts, then the receipt.

Every object is created once (I6). Array objects have the name that standard Zarr gives them, so two
attempts at a chunk meet: the first one's object stays, and a later attempt adopts it (see `adopt`).
Table parts carry a unique name. The receipt comes last and makes the chunk done; whoever loses the
race for it removes its own parts. Where a later generation orders some samples of a chunk, the rows
of the others come from the commit before.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping, Sequence

import numcodecs.blosc
import pyarrow as pa

from sapiens_batch.errors import ProtocolError
from sapiens_batch.failpoints import reach
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.documents import StoredObject, now
from sapiens_batch.protocol.earlier import EarlierLabels, newest_commit
from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.protocol.receipt import Receipt
from sapiens_batch.protocol.tables import status_counts
from sapiens_batch.records import LabelSchema, Level, Problem, TaskName
from sapiens_batch.sinks import parquet, zarr
from sapiens_batch.stages.adopt import adopt
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
    """

    def __init__(
        self,
        store: Store,
        schemas: Mapping[TaskName, LabelSchema],
        extra_columns: Sequence[str],
        chunk_samples: int,
    ) -> None:
        self._store = store
        self._schemas = schemas
        self._chunk_samples = chunk_samples
        self._table_schemas = {
            level: parquet.table_schema(level, list(schemas.values()), extra_columns)
            for level in Level
        }

    def write(self, chunk: LabeledChunk) -> Receipt:
        """Store a chunk and its receipt; returns the receipt that counts, ours or a rival's.

        Raises:
            StorageError: The store failed; what was written is harmless.
            ProtocolError: An array object of another attempt is no array object.
        """
        started = time.perf_counter()
        numcodecs.blosc.use_threads = False  # chunks are encoded in many processes, one core each
        header = chunk.header
        receipt_key = keys.receipt(header.shard_id, header.index, header.generation)
        if self._store.exists(receipt_key):
            return Receipt.from_bytes(self._store.read(receipt_key), key=receipt_key)
        earlier = self._earlier_labels(header)
        reach("before-data")
        chunk = settle(chunk, self._schemas)
        arrays, chunk = self._write_arrays(chunk, earlier)
        reach("after-arrays")
        tables = self._tables(chunk, earlier)
        parts = self._write_parts(header, tables)
        reach("after-parts")
        timings = {**chunk.timings_s, "write": time.perf_counter() - started}
        receipt = _receipt(header, tables, parts, arrays, timings)
        reach("before-receipt")
        created = self._store.create(receipt_key, receipt.to_bytes())
        reach("receipt-response")
        if created:
            reach("after-receipt")
            return receipt
        for part in parts.values():
            self._store.delete(part.key)
        return Receipt.from_bytes(self._store.read(receipt_key), key=receipt_key)

    def _earlier_labels(self, header: ChunkHeader) -> EarlierLabels | None:
        """Labels of the samples of a chunk that were not ordered, or None where all were."""
        if header.ordered is None:
            return None
        base = newest_commit(self._store, header.shard_id, before=header.generation)
        kept = sorted(set(range(header.start, header.stop)) - header.ordered)
        return EarlierLabels(self._store, base, kept)

    def _write_arrays(
        self, chunk: LabeledChunk, earlier: EarlierLabels | None
    ) -> tuple[dict[str, StoredObject], LabeledChunk]:
        stored: dict[str, StoredObject] = {}
        header = chunk.header
        for schema in self._schemas.values():
            if schema.array is None:
                continue
            rows, data = array_rows(chunk, schema)
            if earlier is not None:
                rows, data = earlier.add_rows(schema, header, rows, data)
            if not rows:
                continue
            shard_rows = self._chunk_samples * schema.array.rows_per_sample
            encoded = zarr.encode_shard(schema.array, rows, data, shard_rows)
            key = keys.array_chunk(
                schema.task,
                header.shard_id,
                header.index,
                len(schema.array.row_shape),
                header.generation,
            )
            num_rows = len(rows)
            if not self._store.create(key, encoded):
                encoded = self._store.read(key)
                try:
                    found = adopt(schema, schema.array, rows, data, encoded, shard_rows)
                except ValueError as error:
                    raise ProtocolError(
                        f"{key}: an earlier attempt left garbage: {error}"
                    ) from error
                chunk = settle(chunk, self._schemas, _conflicts(chunk, found.conflicts, key))
                num_rows = found.num_rows
            stored[schema.task] = StoredObject.describe(key, encoded, rows=num_rows)
            reach("mid-arrays")
        return stored, chunk

    def _tables(self, chunk: LabeledChunk, earlier: EarlierLabels | None) -> dict[Level, pa.Table]:
        """The rows of the whole chunk, by table."""
        tables: dict[Level, pa.Table] = {
            Level.IMAGE: images_table(chunk, self._schemas, self._table_schemas[Level.IMAGE]),
            Level.PERSON: persons_table(chunk, self._schemas, self._table_schemas[Level.PERSON]),
        }
        if earlier is None:
            return tables
        return {level: earlier.add_table_rows(level, table) for level, table in tables.items()}

    def _write_parts(
        self, header: ChunkHeader, tables: Mapping[Level, pa.Table]
    ) -> dict[str, StoredObject]:
        attempt = uuid.uuid4().hex
        parts = {}
        for level, table in tables.items():
            if level is Level.PERSON and table.num_rows == 0:
                continue
            data = parquet.encode(table)
            key = keys.part(level.table, header.shard_id, header.index, attempt, header.generation)
            if not self._store.create(key, data):
                raise ProtocolError(f"{key}: the name of a new part is taken")
            parts[level.table] = StoredObject.describe(key, data, rows=table.num_rows)
        return parts


def _conflicts(chunk: LabeledChunk, samples: Collection[int], key: str) -> dict[int, Problem]:
    """Problems of the samples that cannot use an earlier attempt's object.

    Args:
        chunk: The chunk.
        samples: Those samples, counted from the first of the chunk.
        key: The object.
    """
    message = f"{key}: an earlier attempt stored other rows for this sample; retry the sample"
    problem = Problem("storage.row_conflict", message)
    indices = {chunk.header.start + position for position in samples}
    return {
        position: problem
        for position, sample in enumerate(chunk.samples)
        if sample.sample.index in indices
    }


def _receipt(
    header: ChunkHeader,
    tables: Mapping[Level, pa.Table],
    parts: Mapping[str, StoredObject],
    arrays: Mapping[str, StoredObject],
    timings_s: Mapping[str, float],
) -> Receipt:
    counts, reasons = status_counts(tables[Level.IMAGE], tables[Level.PERSON].num_rows)
    return Receipt(
        shard_id=header.shard_id,
        generation=header.generation,
        chunk=header.index,
        start=header.start,
        stop=header.stop,
        last=header.last,
        write_id=uuid.uuid4().hex,
        counts=counts,
        reasons=reasons,
        problems=header.problems,
        parts=dict(parts),
        arrays=dict(arrays),
        timings_s=dict(timings_s),
        created=now(),
    )
