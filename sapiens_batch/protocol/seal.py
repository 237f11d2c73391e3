"""From the receipts of a shard to its commit: tables, arrays under one root each, the commit.

Pure bookkeeping over stored objects; it may run twice, on two drivers at once, and be cut short at
any point. Only the creation of the commit object makes the shard visible (I2), and only one wins.
Every byte that goes into a new object was checked before (I8); array objects that lie under several
roots get names under one of their own by links or copies of the store, so that what a commit names
is complete for any reader (I10).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from sapiens_batch.errors import DamagedReceiptError, ProtocolError
from sapiens_batch.failpoints import reach
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.commit import Commit, CommittedArray, build_commit
from sapiens_batch.protocol.documents import Counts, StoredObject
from sapiens_batch.protocol.earlier import newest_commit, read_base
from sapiens_batch.protocol.receipt import Receipt, read_receipt
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.records import LabelSchema, Level, TaskName
from sapiens_batch.sinks import zarr
from sapiens_batch.sinks.tables import SealedTable
from sapiens_batch.storage import MissingObjectError, Store

REQUEST_THREADS = 8
"""Object stores answer in tens of milliseconds; a shard has some receipts and array objects."""


class TableFormat(Protocol):
    """How rows of chunks become a table of a shard; `sinks.tables.ParquetTables`. Picklable."""

    def seal(
        self,
        level: Level,
        sections: Sequence[bytes],
        roots: Mapping[str, str],
        *,
        base: bytes | None = None,
        kept: Collection[int] = (),
    ) -> SealedTable | None:
        """The table, or None where it has no rows and may be absent.

        Args:
            level: Which table.
            sections: Rows of its chunks, in any order.
            roots: The root of the array by task, for the rows that point into one.
            base: The table of the generation before.
            kept: Samples, by index, whose rows come from there.
        """
        ...


@dataclass(frozen=True, slots=True)
class SealJob:
    """What sealing needs to know of a job. Picklable.

    Attributes:
        store: The job directory.
        schemas: Label schemas by task.
        spec_digest: The job's digest.
        chunk_samples: Samples per chunk.
        tables: How rows become tables.
    """

    store: Store
    schemas: Mapping[TaskName, LabelSchema]
    spec_digest: str
    chunk_samples: int
    tables: TableFormat


def seal_shard(job: SealJob, todo: ShardTodo, chunks: Collection[int]) -> Commit:
    """Make a generation of a shard visible; returns the commit that counts, ours or a rival's.

    Args:
        job: The job.
        todo: The shard and the generation.
        chunks: The chunks that have a receipt of this generation.

    Raises:
        DamagedReceiptError: A receipt, or an array object that one names, is damaged or gone, and
            no commit exists: the shard is to be ordered anew.
        ProtocolError: The receipts do not tile the shard, its rows do not add up (I1), or what they
            build on is damaged.
        StorageError: The store failed; sealing may be tried again.
    """
    key = keys.commit(todo.shard.shard_id, todo.generation)
    reach("before-seal")
    try:
        commit = _Seal(job, todo, chunks).make()
    except DamagedReceiptError:
        if job.store.exists(key):  # sealed by a rival, and its receipts were removed since
            return Commit.from_bytes(job.store.read(key), key)
        raise
    reach("before-commit")
    created = job.store.create(key, commit.to_bytes())
    reach("commit-response")
    if not created:
        commit = Commit.from_bytes(job.store.read(key), key)
    reach("after-commit")
    return commit


class _Seal:
    """One attempt to seal a shard."""

    def __init__(self, job: SealJob, todo: ShardTodo, chunks: Collection[int]) -> None:
        self._job, self._store, self._todo = job, job.store, todo
        shard_id, generation = todo.shard.shard_id, todo.generation
        with ThreadPoolExecutor(REQUEST_THREADS) as pool:
            read = list(
                pool.map(
                    lambda chunk: read_receipt(self._store, shard_id, chunk, generation),
                    sorted(chunks),
                )
            )
        self._receipts: list[Receipt] = [receipt for receipt, _ in read]
        self._sections = [sections for _, sections in read]
        self._base: Commit | None = None
        if todo.samples is not None:
            self._base = newest_commit(self._store, shard_id, before=generation)

    def make(self) -> Commit:
        """Write the tables and arrays; the commit that names them."""
        arrays = self._arrays()
        sealed = self._tables({task: array.root for task, array in arrays.items()})
        tables = {level.table: self._store_table(level, one) for level, one in sealed.items()}
        reach("during-seal")
        images = sealed[Level.IMAGE]
        return build_commit(
            shard=self._todo.shard,
            receipts=self._receipts,
            tables=tables,
            arrays=arrays,
            spec_digest=self._job.spec_digest,
            chunk_samples=self._job.chunk_samples,
            generation=self._todo.generation,
            counts=Counts.of(
                images.statuses, sealed[Level.PERSON].rows if Level.PERSON in sealed else 0
            ),
            reasons=images.reasons,
            base=self._base,
        )

    def _tables(self, roots: Mapping[str, str]) -> dict[Level, SealedTable]:
        """The rows of labeled chunks from their receipts, the others from the base."""
        base = self._base
        labeled = {index for one in self._receipts for index in range(one.start, one.stop)}
        kept = () if base is None else set(range(base.num_samples)) - labeled
        found = {}
        for level in Level:
            stored = base.tables.get(level.table) if base is not None and kept else None
            table = self._job.tables.seal(
                level,
                [one[level.table] for one in self._sections if level.table in one],
                roots,
                # what is not needed may be damaged: a repair labels it again
                base=None if stored is None else read_base(self._store, stored),
                kept=kept,
            )
            if table is not None:
                found[level] = table
        return found

    def _store_table(self, level: Level, table: SealedTable) -> StoredObject:
        shard_id, generation = self._todo.shard.shard_id, self._todo.generation
        key = keys.table(level.table, shard_id, uuid.uuid4().hex, generation)
        if not self._store.create(key, table.data):
            raise ProtocolError(f"{key}: the name of a new table is taken")
        return StoredObject.describe(key, table.data, rows=table.rows, blocks=True)

    def _arrays(self) -> dict[str, CommittedArray]:
        """The array of each task, complete under one root; writes what lacks."""
        found: dict[str, CommittedArray] = {}
        base = self._base
        labeled = {receipt.chunk for receipt in self._receipts}
        for task, schema in self._job.schemas.items():
            objects = {one.chunk: one.arrays[task] for one in self._receipts if task in one.arrays}
            if base is not None and task in base.arrays:
                before = base.arrays[task].by_chunk().items()
                objects |= {chunk: one for chunk, one in before if chunk not in labeled}
            if objects:
                found[task] = self._array(schema, [objects[chunk] for chunk in sorted(objects)])
        return found

    def _array(self, schema: LabelSchema, objects: Sequence[StoredObject]) -> CommittedArray:
        """Describe the array that has these objects, after giving them a root in common."""
        if schema.array is None:
            raise ProtocolError(
                f"receipts of shard {self._todo.shard.key} name an array of task {schema.task}"
            )
        end = max((one.stop for one in self._receipts), default=0)
        num_samples = end if self._base is None else self._base.num_samples
        per_sample = schema.array.rows_per_sample
        num_rows, shard_rows = num_samples * per_sample, self._job.chunk_samples * per_sample
        document = zarr.array_metadata(schema, num_rows, shard_rows)
        roots = {keys.array_root(one.key) for one in objects}
        root = min(roots)
        if len(roots) > 1 or self._base is not None or not self._describe(root, document):
            root = keys.array(
                schema.task, self._todo.shard.shard_id, self._todo.generation, uuid.uuid4().hex
            )
            objects = self._copied(objects, root)
            self._describe(root, document)
        return CommittedArray(
            root=root,
            shape=(num_rows, *schema.array.row_shape),
            shard_rows=shard_rows,
            metadata=StoredObject.describe(keys.array_document(root), document),
            chunks=tuple(objects),
        )

    def _describe(self, root: str, document: bytes) -> bool:
        """Write the `zarr.json` of a root; False where another one is there."""
        key = keys.array_document(root)
        return self._store.create(key, document) or self._store.read(key) == document

    def _copied(self, objects: Sequence[StoredObject], root: str) -> list[StoredObject]:
        """The same objects under another root, with what is recorded of them (I8)."""

        def copy(one: StoredObject) -> StoredObject:
            key = root + one.key.removeprefix(keys.array_root(one.key))
            try:
                created = self._store.copy(one.key, key)
            except MissingObjectError as error:
                raise self._lost(one, error) from error
            if not created:
                raise ProtocolError(f"{key}: the name of a new array object is taken")
            return one.model_copy(update={"key": key})

        with ThreadPoolExecutor(REQUEST_THREADS) as pool:
            return list(pool.map(copy, objects))

    def _lost(self, one: StoredObject, error: MissingObjectError) -> ProtocolError:
        if any(one in receipt.arrays.values() for receipt in self._receipts):
            return DamagedReceiptError(f"{one.key}: a receipt names a lost object: {error}")
        return ProtocolError(f"{one.key}: the object is lost, run `verify --repair`: {error}")
