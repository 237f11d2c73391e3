"""Check one committed shard: its objects, its tables, and its arrays against its tables (I1, I5).

Everything is compared with what the commit says. Whether the shard was planned, and what to do
about a finding, is left to `job`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sapiens_batch.errors import ProtocolError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.documents import Counts, StoredObject
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.records import Array, LabelSchema, Level, Status
from sapiens_batch.sinks import parquet, zarr
from sapiens_batch.sinks.parquet import table_schema
from sapiens_batch.sinks.tables import count_statuses
from sapiens_batch.storage import Store
from sapiens_batch.verify.objects import check_objects, is_sampled
from sapiens_batch.verify.report import Fault, Finding
from sapiens_batch.verify.rows import array_row_problems, key_problems, order_problems


@dataclass(slots=True)
class Checked:
    """How much was read.

    Attributes:
        objects: Objects whose bytes were compared.
        size_bytes: Their size.
    """

    objects: int = 0
    size_bytes: int = 0


class ShardChecker:
    """Checks the committed shards of one job.

    Args:
        store: The job directory.
        job: Its document.
        sample_fraction: Share of the objects to read; the sizes of the others are compared.

    Attributes:
        checked: How much was read so far.
    """

    def __init__(self, store: Store, job: JobDocument, sample_fraction: float) -> None:
        self.checked = Checked()
        self._store = store
        self._sample_fraction = sample_fraction
        self._schemas = job.label_schemas
        self._table_schemas = {
            level: table_schema(level, self._schemas, job.extra_columns) for level in Level
        }

    def check(self, commit: Commit) -> Iterator[Finding]:
        """Everything that is wrong with a shard.

        Raises:
            StorageError: The store cannot be read.
        """
        bad: set[str] = set()
        for finding in self._check_objects(commit):
            bad.add(finding.key)
            yield finding
        tables: dict[Level, pa.Table] = {}
        for level in Level:
            stored = commit.tables.get(level.table)
            if stored is None or stored.key in bad or not self._reads(stored):
                continue
            try:
                table = parquet.decode(stored.read(self._store))
            except ProtocolError as error:
                yield _finding(commit, Fault.TABLE_UNREADABLE, stored.key, str(error))
                continue
            tables[level] = table
            yield from self._check_table(commit, level, table, stored)
        yield from _check_counts(commit, tables)
        for schema in self._schemas:
            if schema.array is not None:
                yield from self._check_array(commit, schema, tables.get(schema.level), bad)

    def _reads(self, stored: StoredObject) -> bool:
        return is_sampled(stored, self._sample_fraction)

    def _check_objects(self, commit: Commit) -> Iterator[Finding]:
        """Presence, size and checksum of everything that the commit names."""
        for check in check_objects(self._store, _named(commit), self._sample_fraction):
            if check.read_bytes:
                self.checked.objects += 1
                self.checked.size_bytes += check.read_bytes
            if check.fault is not None:
                key = check.stored.key
                yield _finding(commit, check.fault, key, check.message, _damage(commit, key))

    def _check_table(
        self, commit: Commit, level: Level, table: pa.Table, stored: StoredObject
    ) -> Iterator[Finding]:
        """Schema, rows and identity of a table."""
        if not table.schema.equals(self._table_schemas[level]):
            message = f"columns {table.schema.names} are not those of the job"
            yield _finding(commit, Fault.TABLE_SCHEMA, stored.key, message)
            return
        if table.num_rows != stored.rows:
            message = f"{table.num_rows} rows, {stored.rows} are recorded"
            yield _finding(commit, Fault.TABLE_ROWS, stored.key, message)
        if set(table["shard_id"].unique().to_pylist()) - {commit.shard_id}:
            yield _finding(commit, Fault.TABLE_ROWS, stored.key, "rows of another shard")
        messages = list(order_problems(level, table, commit.num_samples))
        if not messages:  # rows are told apart by their order
            roots = {task: array.root for task, array in commit.arrays.items()}
            mine = (schema for schema in self._schemas if schema.level is level)
            messages += [
                one
                for schema in mine
                for one in array_row_problems(schema, table, roots.get(schema.task))
            ]
        for message in messages:
            yield _finding(commit, Fault.TABLE_ROWS, stored.key, message)

    def _check_array(
        self, commit: Commit, schema: LabelSchema, table: pa.Table | None, bad: set[str]
    ) -> Iterator[Finding]:
        """That the array is described right and holds every row that the table points at."""
        array = commit.arrays.get(schema.task)
        rows = np.zeros(0, np.int64) if table is None else _row_numbers(schema, table)
        if array is None:
            if len(rows):
                key, message = keys.array(schema.task, commit.shard_id), "the commit has no array"
                yield _finding(commit, Fault.ARRAY_ROWS, key, f"{message} for {len(rows)} rows")
            return
        if array.metadata.key not in bad and self._reads(array.metadata):
            expected = zarr.array_metadata(schema, array.shape[0], array.shard_rows)
            if self._store.read(array.metadata.key) != expected:
                message = "the array is not described as the job's label schema says"
                yield _finding(commit, Fault.ARRAY_SHAPE, array.metadata.key, message, (0, 0))
        objects = array.by_chunk()
        for chunk in set(range(len(commit.chunks))) ^ objects.keys() if commit.num_samples else ():
            key = f"{array.root}/c/{chunk}"
            message = "the commit does not name one object a chunk"
            yield _finding(commit, Fault.ARRAY_ROWS, key, message, _chunk(commit, chunk))
        for chunk, stored in objects.items():
            if stored.key not in bad and self._reads(stored):
                positions = rows[rows // array.shard_rows == chunk] % array.shard_rows
                yield from self._check_chunk(commit, stored, positions, array.shard_rows)

    def _check_chunk(
        self, commit: Commit, stored: StoredObject, positions: Array, shard_rows: int
    ) -> Iterator[Finding]:
        """That an array object has a whole index and the rows that are pointed at."""
        samples = _damage(commit, stored.key)
        tail = min(zarr.index_size(shard_rows), stored.size_bytes)
        try:
            index = self._store.read_range(stored.key, -tail) if tail else b""
            present = np.array(zarr.present_rows(index, shard_rows))
        except ValueError as error:
            yield _finding(commit, Fault.ARRAY_UNREADABLE, stored.key, str(error), samples)
            return
        absent = positions[~present[positions]]
        if len(absent):
            message = f"the tables point at {len(absent)} rows that the object does not hold"
            yield _finding(commit, Fault.ARRAY_ROWS, stored.key, message, samples)
        if present.sum() != stored.rows:
            message = f"{present.sum()} rows, {stored.rows} are recorded"
            yield _finding(commit, Fault.ARRAY_ROWS, stored.key, message, samples)


def _named(commit: Commit) -> Iterator[StoredObject]:
    """Every object that a commit names."""
    yield from commit.tables.values()
    for array in commit.arrays.values():
        yield array.metadata
        yield from array.chunks


def _check_counts(commit: Commit, tables: dict[Level, pa.Table]) -> Iterator[Finding]:
    """That statuses, reasons and persons add up to what the commit counts (I1)."""
    key = keys.commit(commit.shard_id, commit.generation)
    if Level.IMAGE.table not in commit.tables:
        yield _finding(commit, Fault.COMMIT_COUNTS, key, "the commit names no `images` table")
    images = tables.get(Level.IMAGE)
    if images is None:
        return
    persons = tables.get(Level.PERSON)
    if persons is None and Level.PERSON.table in commit.tables:
        return
    statuses, reasons = count_statuses(images)
    counts = Counts.of(statuses, 0 if persons is None else persons.num_rows)
    if counts != commit.counts or reasons != commit.reasons:
        message = (
            f"the tables count {counts.model_dump()} with reasons {reasons}, the commit "
            f"{commit.counts.model_dump()} with {commit.reasons}"
        )
        yield _finding(commit, Fault.COMMIT_COUNTS, key, message)
    for message in () if persons is None else key_problems(images, persons):
        yield _finding(commit, Fault.TABLE_ROWS, commit.tables[Level.PERSON.table].key, message)
    if not np.array_equal(_persons_found(images, persons), images["num_persons"].to_numpy()):
        message = "`num_persons` of some samples is not their rows in `persons`"
        yield _finding(commit, Fault.TABLE_ROWS, commit.tables[Level.IMAGE.table].key, message)


def _persons_found(images: pa.Table, persons: pa.Table | None) -> Array:
    """Rows of `persons` that were labeled, by row of `images`."""
    if persons is None:
        return np.zeros(images.num_rows, np.int64)
    labeled = persons.filter(pc.field("status") == str(Status.OK))
    owners = labeled["index"].to_numpy()
    return np.bincount(owners[owners >= 0], minlength=images.num_rows)


def _row_numbers(schema: LabelSchema, table: pa.Table) -> Array:
    """Array rows that a table points at."""
    numbers: Array = table[f"{schema.task}_row"].drop_null().to_numpy()
    return numbers


def _damage(commit: Commit, key: str) -> tuple[int, int] | None:
    """Samples to label again where an object of a shard is lost."""
    name = keys.parse(key)
    if name is None or name.kind == "table":
        return None
    return (0, 0) if name.chunk is None else _chunk(commit, name.chunk)


def _chunk(commit: Commit, chunk: int) -> tuple[int, int] | None:
    """Samples of a chunk."""
    return commit.chunks[chunk][:2] if chunk < len(commit.chunks) else None


def _finding(
    commit: Commit, fault: Fault, key: str, message: str, samples: tuple[int, int] | None = None
) -> Finding:
    return Finding(fault, key, message, commit.shard_id, samples)
