"""From a shard's receipts to its commit: merge parts, describe arrays, create the commit.

Pure bookkeeping over stored objects; it may run twice, on two drivers at once, and be cut short at
any point. Only the creation of the commit object makes the shard visible (I2), and only one wins.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pyarrow as pa

from sapiens_batch.errors import ProtocolError
from sapiens_batch.failpoints import reach
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.commit import Commit, CommittedArray, build_commit
from sapiens_batch.protocol.documents import StoredObject
from sapiens_batch.protocol.earlier import EarlierLabels, newest_commit
from sapiens_batch.protocol.receipt import Receipt
from sapiens_batch.protocol.tables import status_counts
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.records import LabelSchema, Level
from sapiens_batch.sinks import parquet, zarr
from sapiens_batch.stages.context import JobContext
from sapiens_batch.storage import MissingObjectError, Store


def seal_shard(context: JobContext, todo: ShardTodo, receipts: Sequence[Receipt]) -> Commit:
    """Make a generation of a shard visible; returns the commit that counts, ours or a rival's.

    Args:
        context: The job.
        todo: The shard and the generation.
        receipts: All receipts of the generation, in any order.

    Raises:
        ProtocolError: The receipts do not tile the shard, its rows do not add up (I1), or objects
            that a receipt names are gone though no commit exists.
        StorageError: The store failed; sealing may be tried again.
    """
    store, shard = context.store, todo.shard
    key = keys.commit(shard.shard_id, todo.generation)
    ordered = sorted(receipts, key=lambda receipt: receipt.chunk)
    reach("before-seal")
    try:
        commit = _make_commit(context, todo, ordered)
    except MissingObjectError as error:
        if store.exists(key):
            return Commit.from_bytes(store.read(key), key=key)
        raise ProtocolError(f"shard {shard.key}: a receipt names a lost part: {error}") from error
    reach("before-commit")
    created = store.create(key, commit.to_bytes())
    reach("commit-response")
    if created:
        obsolete = [part.key for receipt in ordered for part in receipt.parts.values()]
    else:
        rival = Commit.from_bytes(store.read(key), key=key)
        obsolete = [table.key for table in commit.tables.values()]
        commit = rival
    reach("after-commit")
    for name in obsolete:
        store.delete(name)
    return commit


def _make_commit(context: JobContext, todo: ShardTodo, receipts: Sequence[Receipt]) -> Commit:
    """Write the tables and array metadata of a shard; the commit that names them."""
    store, shard = context.store, todo.shard
    base, counts, reasons = None, None, None
    if todo.samples is None:
        files = {
            level: (
                parquet.merge([store.read(part.key) for part in parts]),
                sum(part.rows for part in parts),
            )
            for level in Level
            if (parts := [one.parts[level.table] for one in receipts if level.table in one.parts])
        }
    else:
        base = newest_commit(store, shard.shard_id, before=todo.generation)
        rows = _rows_with_base(store, receipts, base)
        files = {level: (parquet.encode(one), one.num_rows) for level, one in rows.items()}
        persons = rows.get(Level.PERSON)
        counts, reasons = status_counts(
            rows[Level.IMAGE], 0 if persons is None else persons.num_rows
        )
    tables = {
        level.table: _store_table(store, todo, level, data, num_rows)
        for level, (data, num_rows) in files.items()
    }
    reach("during-seal")
    return build_commit(
        shard=shard,
        receipts=receipts,
        tables=tables,
        arrays=_describe_arrays(context, todo, receipts, base),
        spec_digest=context.spec_digest,
        chunk_samples=context.chunk_samples,
        generation=todo.generation,
        counts=counts,
        reasons=reasons,
        base=base,
    )


def _rows_with_base(
    store: Store, receipts: Sequence[Receipt], base: Commit
) -> dict[Level, pa.Table]:
    """The rows of a shard: of relabeled chunks from their parts, the others from the base."""
    relabeled = {index for one in receipts for index in range(one.start, one.stop)}
    kept = [index for index in range(base.num_samples) if index not in relabeled]
    earlier = EarlierLabels(store, base, kept)
    found = {}
    for level in Level:
        parts = [one.parts[level.table] for one in receipts if level.table in one.parts]
        if not parts:
            table = earlier.table(level)
        else:
            anew = pa.concat_tables([parquet.decode(store.read(part.key)) for part in parts])
            table = earlier.add_table_rows(level, anew)
        if table is not None and (table.num_rows or level is Level.IMAGE):
            found[level] = table
    return found


def _store_table(
    store: Store, todo: ShardTodo, level: Level, data: bytes, num_rows: int
) -> StoredObject:
    write_id = uuid.uuid4().hex
    key = keys.table(level.table, todo.shard.shard_id, write_id, todo.generation)
    if not store.create(key, data):
        raise ProtocolError(f"{key}: the name of a new table is taken")
    return StoredObject.describe(key, data, rows=num_rows)


def _describe_arrays(
    context: JobContext,
    todo: ShardTodo,
    receipts: Sequence[Receipt],
    base: Commit | None,
) -> dict[str, CommittedArray]:
    """One entry per task with a labeled row; writes the arrays' metadata."""
    found: dict[str, CommittedArray] = {}
    num_samples = max(receipt.stop for receipt in receipts) if base is None else base.num_samples
    labeled = {receipt.chunk for receipt in receipts}
    for schema in context.schemas.values():
        chunks = {
            receipt.chunk: receipt.arrays[schema.task]
            for receipt in receipts
            if schema.task in receipt.arrays
        }
        if base is not None and schema.task in base.arrays:
            for one in base.arrays[schema.task].chunks:
                name = keys.parse(one.key)
                if name is not None and name.chunk is not None and name.chunk not in labeled:
                    chunks[name.chunk] = one
        if chunks:
            ordered = [chunks[chunk] for chunk in sorted(chunks)]
            found[schema.task] = _describe(context, todo, schema, ordered, num_samples)
    return found


def _describe(
    context: JobContext,
    todo: ShardTodo,
    schema: LabelSchema,
    chunks: Sequence[StoredObject],
    num_samples: int,
) -> CommittedArray:
    """Write an array's `zarr.json` and list its objects."""
    shard = todo.shard
    if schema.array is None:
        raise ProtocolError(f"receipts of shard {shard.key} name an array of task {schema.task}")
    key = keys.array_document(schema.task, shard.shard_id, todo.generation)
    per_sample = schema.array.rows_per_sample
    num_rows, shard_rows = num_samples * per_sample, context.chunk_samples * per_sample
    document = zarr.array_metadata(schema, num_rows, shard_rows)
    if not context.store.create(key, document) and context.store.read(key) != document:
        raise ProtocolError(f"{key}: another driver described this array differently")
    return CommittedArray(
        root=keys.array(schema.task, shard.shard_id, todo.generation),
        shape=(num_rows, *schema.array.row_shape),
        shard_rows=shard_rows,
        metadata=StoredObject.describe(key, document),
        chunks=tuple(chunks),
    )
