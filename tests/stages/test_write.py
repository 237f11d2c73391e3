"""Chunks become objects once, whatever attempts meet: rows, arrays, receipts (I1, I6)."""

from __future__ import annotations

import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from sapiens_batch import failpoints as faults
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.receipt import Receipt, read_receipt
from sapiens_batch.protocol.seal import seal_shard
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.records import Problem
from sapiens_batch.sinks import zarr
from sapiens_batch.sinks.tables import decode_rows
from sapiens_batch.stages.write import ChunkWriter
from sapiens_batch.storage import Store, open_store
from sapiens_batch.storage.memory import MemoryStore
from tests.small_tasks import CHUNK_SAMPLES, SCHEMAS, SEG, SHARD, MakeChunk, seal_job


class CountingStore(MemoryStore):
    """Memory that counts the requests by kind."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.requests: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name in ("create", "copy", "read", "read_range", "exists", "size", "list", "delete"):
            self.requests[name] += 1
        return found


@pytest.fixture
def store(tmp_path: object) -> Store:
    return open_store(str(tmp_path))


@pytest.fixture
def writer(store: Store) -> ChunkWriter:
    return ChunkWriter(store, SCHEMAS, [], CHUNK_SAMPLES)


def rows_of(store: Store, receipt: Receipt, table: str) -> list[dict[str, object]]:
    _, sections = read_receipt(store, receipt.shard_id, receipt.chunk, receipt.generation)
    return decode_rows(sections[table]).to_pylist()


def test_every_sample_gets_one_row_whatever_happened(
    writer: ChunkWriter, store: Store, make_chunk: MakeChunk
) -> None:
    receipt = writer.write(make_chunk([2, None, 0]))
    rows = rows_of(store, receipt, "images")
    assert [row["status"] for row in rows] == ["ok", "quarantined", "empty"]
    assert [row["reason"] for row in rows] == [None, "decode.truncated", None]
    assert [row["seg_row"] for row in rows] == [0, None, 2]
    assert [row["num_persons"] for row in rows] == [2, 0, 0]
    counts = receipt.counts
    assert (counts.ok, counts.empty, counts.quarantined, counts.persons) == (1, 1, 1, 2)
    assert receipt.reasons == {"decode.truncated": 1}


def test_labels_stand_in_the_rows_of_their_owners(
    writer: ChunkWriter, store: Store, make_chunk: MakeChunk
) -> None:
    receipt = writer.write(make_chunk([1, 0, 2], index=3))
    persons = rows_of(store, receipt, "persons")
    assert [(row["key"], row["person"]) for row in persons] == [
        ("key-12", 0),
        ("key-14", 0),
        ("key-14", 1),
    ]
    assert [row["keypoints"][0][0] for row in persons] == [0, 1, 2]
    assert [row["bbox"] for row in persons][2] == [2, 1, 10, 20]
    images = rows_of(store, receipt, "images")
    assert [row["seg_class_pixels"] for row in images] == [[12, 12], [13, 13], [14, 14]]
    assert [row["seg_affine"] for row in images] == [[2.0, 2.0, 0.5, 0.5]] * 3
    assert [row["seg_row"] for row in images] == [12, 13, 14]


def test_an_array_object_holds_the_labeled_rows_only(
    writer: ChunkWriter, store: Store, make_chunk: MakeChunk
) -> None:
    receipt = writer.write(make_chunk([2, None, 0]))
    data = store.read(receipt.arrays["seg"].key)
    assert zarr.present_rows(data, CHUNK_SAMPLES) == [True, False, True, False]
    assert SEG.array is not None
    found = dict(zarr.decode_rows(SEG.array, data, CHUNK_SAMPLES))
    np.testing.assert_array_equal(found[2], np.full((2, 3), 2))


def test_a_label_that_failed_quarantines_the_image_and_drops_its_persons(
    writer: ChunkWriter, store: Store, make_chunk: MakeChunk
) -> None:
    problem = Problem("label.non_finite", "seg gave NaN")
    receipt = writer.write(make_chunk([2, 1], seg_problems=[problem, None]))
    rows = rows_of(store, receipt, "images")
    assert [row["status"] for row in rows] == ["quarantined", "ok"]
    assert rows[0]["num_persons"] == 0
    assert [row["key"] for row in rows_of(store, receipt, "persons")] == ["key-1"]
    present = zarr.present_rows(store.read(receipt.arrays["seg"].key), CHUNK_SAMPLES)
    assert present[:2] == [False, True]


def test_a_chunk_costs_one_request_besides_its_arrays(make_chunk: MakeChunk) -> None:
    store = CountingStore(uuid.uuid4().hex)
    writer = ChunkWriter(store, SCHEMAS, [], CHUNK_SAMPLES)
    writer.write(make_chunk([2, None, 0, 1], last=False))
    assert store.requests == {"create": 2}
    writer.write(make_chunk([1], index=1))
    seal_shard(seal_job(store), ShardTodo(SHARD), {0, 1})
    # two receipts are read; the tables, the description of the array and the commit are created
    assert store.requests == {"create": 4 + 2 + 1 + 1, "read": 2}


def test_of_two_attempts_one_receipt_counts_with_its_own_objects(
    writer: ChunkWriter, store: Store, make_chunk: MakeChunk
) -> None:
    first = writer.write(make_chunk([1]))
    before = {info.key: store.read(info.key) for info in store.list("")}
    assert writer.write(make_chunk([1])) == first
    after = {info.key: store.read(info.key) for info in store.list("")}
    assert before.items() <= after.items()
    assert all(keys.array_root(key).endswith(".zarr") for key in after.keys() - before.keys())


@pytest.mark.parametrize("point", ["before-data", "mid-arrays", "after-arrays", "before-receipt"])
def test_an_attempt_that_died_before_its_receipt_costs_no_sample(
    writer: ChunkWriter,
    store: Store,
    make_chunk: MakeChunk,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    point: str,
) -> None:
    folder = tmp_path_factory.mktemp("faults")
    monkeypatch.setenv(faults.FAULTS_VARIABLE, str(folder))
    faults.arm(folder, point, "raise")
    with pytest.raises(faults.InjectedFaultError):
        writer.write(make_chunk([1, 1], seg_problems=[None, Problem("label.non_finite", "NaN")]))
    receipt = writer.write(make_chunk([1, 1]))
    assert receipt.counts.ok == 2
    data = store.read(receipt.arrays["seg"].key)
    assert zarr.present_rows(data, CHUNK_SAMPLES) == [True, True, False, False]


def test_arrays_are_stored_side_by_side_where_there_are_threads(
    store: Store, make_chunk: MakeChunk
) -> None:
    with ThreadPoolExecutor(2) as pool:
        writer = ChunkWriter(store, SCHEMAS, [], CHUNK_SAMPLES, pool)
        receipt = writer.write(make_chunk([1, 1]))
    assert receipt.arrays["seg"].read(store)


def test_an_empty_shard_has_a_receipt_and_no_rows(
    writer: ChunkWriter, store: Store, make_chunk: MakeChunk
) -> None:
    receipt = writer.write(make_chunk([]))
    assert (receipt.start, receipt.stop, receipt.last) == (0, 0, True)
    assert rows_of(store, receipt, "images") == []
    assert receipt.arrays == {}
