"""From the encoded labels of a chunk to durable objects: its arrays, then its receipt.

Every object is created once (I6). Array objects have the name that standard Zarr gives them, so two
attempts at a chunk meet: whoever finds the name taken writes under a root of its own, and nobody
looks at what others stored. The receipt comes last and makes the chunk done; of two attempts, one
receipt counts. What a chunk holds, and how it is encoded, is left to the caller.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

from sapiens_batch.errors import ProtocolError
from sapiens_batch.failpoints import reach
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.documents import Counts, StoredObject, now
from sapiens_batch.protocol.receipt import Receipt, RowSection, read_receipt
from sapiens_batch.records import Problem
from sapiens_batch.storage import Store


@dataclass(frozen=True, slots=True)
class ChunkHeader:
    """Which samples a record is about; the same through all stages.

    Attributes:
        shard_id: The shard's id.
        index: Number of the chunk in its shard.
        start: Index of the first sample in the shard.
        stop: Index after the last sample.
        last: Whether the chunk ends its shard.
        problems: Damage of the shard that belongs to no sample.
        generation: Which generation of the shard is being made.
        ordered: Indices of the chunk's samples to label; None for all. The others are taken over
            from the commit before.
    """

    shard_id: str
    index: int
    start: int
    stop: int
    last: bool
    problems: tuple[Problem, ...] = ()
    generation: int = 0
    ordered: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class EncodedArray:
    """The array object of one task and chunk.

    Attributes:
        data: Its bytes.
        rows: Labeled rows in it.
        row_ndim: Axes of a row.
    """

    data: bytes
    rows: int
    row_ndim: int


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """The rows of one table and chunk.

    Attributes:
        data: Their bytes.
        rows: How many.
    """

    data: bytes
    rows: int


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of the samples of a chunk.

    Attributes:
        counts: Samples by status, and persons.
        reasons: Quarantined samples by reason.
    """

    counts: Counts
    reasons: Mapping[str, int]


EncodeArray = Callable[[], EncodedArray]


def put_chunk(
    store: Store,
    header: ChunkHeader,
    arrays: Mapping[str, EncodeArray],
    rows: Mapping[str, EncodedRows],
    tally: Tally,
    *,
    timings_s: Mapping[str, float] | None = None,
    executor: Executor | None = None,
) -> Receipt:
    """Store a chunk; returns the receipt that counts, ours or a rival's.

    Args:
        store: The job directory.
        header: The chunk.
        arrays: How to encode the array of each task. An array without a labeled row is stored as
            well, so that its name is taken and no late attempt can fill it.
        rows: The rows of each table.
        tally: What they count.
        timings_s: Seconds by stage so far.
        executor: Where arrays are encoded and put side by side; one after the other without.

    Raises:
        DamagedReceiptError: Another attempt's receipt is there, and damaged.
        StorageError: The store failed; what was written is harmless.
    """
    started = time.perf_counter()

    def put(task: str) -> StoredObject:
        stored = _put_array(store, header, task, arrays[task]())
        reach("mid-arrays")
        return stored

    reach("before-data")
    found = list(map(put, arrays) if executor is None else executor.map(put, arrays))
    reach("after-arrays")
    receipt = Receipt(
        shard_id=header.shard_id,
        generation=header.generation,
        chunk=header.index,
        start=header.start,
        stop=header.stop,
        last=header.last,
        write_id=uuid.uuid4().hex,
        counts=tally.counts,
        reasons=dict(tally.reasons),
        problems=header.problems,
        rows={table: RowSection.describe(one.data, rows=one.rows) for table, one in rows.items()},
        arrays=dict(zip(arrays, found, strict=True)),
        timings_s={**(timings_s or {}), "write": time.perf_counter() - started},
        created=now(),
    )
    return _put_receipt(store, receipt, {table: one.data for table, one in rows.items()})


def _put_array(store: Store, header: ChunkHeader, task: str, array: EncodedArray) -> StoredObject:
    for write_id in ("", uuid.uuid4().hex):
        root = keys.array(task, header.shard_id, header.generation, write_id)
        key = keys.array_chunk(root, header.index, array.row_ndim)
        if store.create(key, array.data):
            return StoredObject.describe(key, array.data, rows=array.rows)
    raise ProtocolError(f"{key}: a new name is taken")


def _put_receipt(store: Store, receipt: Receipt, sections: Mapping[str, bytes]) -> Receipt:
    key = keys.receipt(receipt.shard_id, receipt.chunk, receipt.generation)
    reach("before-receipt")
    created = store.create(key, receipt.pack(sections))
    reach("receipt-response")
    if not created:
        return read_receipt(store, receipt.shard_id, receipt.chunk, receipt.generation)[0]
    reach("after-receipt")
    return receipt
