"""From a shard's receipts to its commit: merge parts, describe arrays, create the commit.

Pure bookkeeping over stored objects; it may run twice, on two drivers at once, and be cut short at
any point. Only the creation of the commit object makes the shard visible (I2), and only one wins.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from sapiens_batch.errors import ProtocolError
from sapiens_batch.job.commit import Commit, CommittedArray, build_commit
from sapiens_batch.job.receipt import Receipt, StoredObject
from sapiens_batch.pipeline.context import JobContext
from sapiens_batch.pipeline.faults import reach
from sapiens_batch.records import LabelSchema, Level, Shard
from sapiens_batch.sinks import parquet, zarr
from sapiens_batch.storage import MissingObjectError, Store, keys


def seal_shard(context: JobContext, shard: Shard, receipts: Sequence[Receipt]) -> Commit:
    """Make a shard visible; returns the commit that counts, ours or a rival's.

    Args:
        context: The job.
        shard: The shard.
        receipts: All its receipts, in any order.

    Raises:
        ProtocolError: The receipts do not tile the shard, its rows do not add up (I1), or objects
            that a receipt names are gone though no commit exists.
        StorageError: The store failed; sealing may be tried again.
    """
    store = context.store
    key = keys.commit(shard.shard_id)
    ordered = sorted(receipts, key=lambda receipt: receipt.chunk)
    reach("before-seal")
    try:
        tables = _merge_tables(store, shard, ordered)
    except MissingObjectError as error:
        if store.exists(key):
            return Commit.from_bytes(store.read(key), key=key)
        raise ProtocolError(f"shard {shard.key}: a receipt names a lost part: {error}") from error
    reach("during-seal")
    commit = build_commit(
        shard=shard,
        receipts=ordered,
        tables=tables,
        arrays=_describe_arrays(context, shard, ordered),
        spec_digest=context.spec_digest,
        chunk_samples=context.chunk_samples,
    )
    reach("before-commit")
    if store.create(key, commit.to_bytes()):
        obsolete = [part.key for receipt in ordered for part in receipt.parts.values()]
    else:
        commit = Commit.from_bytes(store.read(key), key=key)
        obsolete = [table.key for table in tables.values()]
    reach("after-commit")
    for name in obsolete:
        store.delete(name)
    return commit


def _merge_tables(
    store: Store, shard: Shard, receipts: Sequence[Receipt]
) -> dict[str, StoredObject]:
    """One object per table that has rows, with the rows of all chunks in order."""
    write_id = uuid.uuid4().hex
    tables = {}
    for name in (level.table for level in Level):
        parts = [receipt.parts[name] for receipt in receipts if name in receipt.parts]
        if parts:
            data = parquet.merge([store.read(part.key) for part in parts])
            key = keys.table(name, shard.shard_id, write_id)
            if not store.create(key, data):
                raise ProtocolError(f"{key}: the name of a new table is taken")
            rows = sum(part.rows for part in parts)
            tables[name] = StoredObject.describe(key, data, rows=rows)
    return tables


def _describe_arrays(
    context: JobContext, shard: Shard, receipts: Sequence[Receipt]
) -> dict[str, CommittedArray]:
    """One entry per task with a labeled row; writes the arrays' metadata."""
    num_samples = max(receipt.stop for receipt in receipts)
    return {
        schema.task: _describe(context, shard, schema, receipts, num_samples)
        for schema in context.schemas.values()
        if any(schema.task in receipt.arrays for receipt in receipts)
    }


def _describe(
    context: JobContext,
    shard: Shard,
    schema: LabelSchema,
    receipts: Sequence[Receipt],
    num_samples: int,
) -> CommittedArray:
    """Write an array's `zarr.json` and list its objects."""
    if schema.array is None:
        raise ProtocolError(f"receipts of shard {shard.key} name an array of task {schema.task}")
    key = keys.array_document(schema.task, shard.shard_id)
    document = zarr.array_metadata(schema, num_samples, context.chunk_samples)
    if not context.store.create(key, document) and context.store.read(key) != document:
        raise ProtocolError(f"{key}: another driver described this array differently")
    return CommittedArray(
        root=keys.array(schema.task, shard.shard_id),
        shape=(num_samples, *schema.array.row_shape),
        shard_rows=context.chunk_samples,
        metadata=StoredObject.describe(key, document),
        chunks=tuple(one.arrays[schema.task] for one in receipts if schema.task in one.arrays),
    )
