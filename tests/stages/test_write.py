"""Chunks become objects once, whatever attempts meet: rows, arrays, receipts (I1, I6)."""

from __future__ import annotations

import numpy as np
import pytest

from sapiens_batch import failpoints as faults
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.receipt import Receipt
from sapiens_batch.records import Problem
from sapiens_batch.sinks import parquet, zarr
from sapiens_batch.stages.write import ChunkWriter
from sapiens_batch.storage import Store, open_store
from tests.small_tasks import CHUNK_SAMPLES, SCHEMAS, SEG, SHARD, MakeChunk


@pytest.fixture
def store(tmp_path: object) -> Store:
    return open_store(str(tmp_path))


@pytest.fixture
def writer(store: Store) -> ChunkWriter:
    return ChunkWriter(store, SCHEMAS, [], CHUNK_SAMPLES)


def rows_of(store: Store, receipt: Receipt, table: str) -> list[dict[str, object]]:
    return parquet.decode(store.read(receipt.parts[table].key)).to_pylist()


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


def test_a_second_attempt_returns_the_first_receipt_and_writes_nothing(
    writer: ChunkWriter, store: Store, make_chunk: MakeChunk
) -> None:
    first = writer.write(make_chunk([1]))
    before = {info.key for info in store.list("")}
    assert writer.write(make_chunk([1])) == first
    assert {info.key for info in store.list("")} == before


def test_an_attempt_that_died_before_its_receipt_is_taken_over(
    writer: ChunkWriter,
    store: Store,
    make_chunk: MakeChunk,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("faults")
    monkeypatch.setenv(faults.FAULTS_VARIABLE, str(folder))
    faults.arm(folder, "after-parts", "raise")
    with pytest.raises(faults.InjectedFaultError):
        writer.write(make_chunk([1, None]))
    receipt = writer.write(make_chunk([1, None]))
    named = {part.key for part in receipt.parts.values()}
    found = {info.key for info in store.list(keys.PARTS)}
    assert named < found, "the dead attempt's parts are orphans, not overwritten"


def test_a_row_that_an_earlier_attempt_did_not_store_is_quarantined_not_torn(
    writer: ChunkWriter, store: Store, make_chunk: MakeChunk
) -> None:
    assert SEG.array is not None
    only_first = zarr.encode_shard(SEG.array, [0], np.zeros((1, 2, 3), np.uint8), CHUNK_SAMPLES)
    store.create(keys.array_chunk("seg", SHARD.shard_id, 0, 2), only_first)
    receipt = writer.write(make_chunk([1, 1]))
    rows = rows_of(store, receipt, "images")
    assert [row["status"] for row in rows] == ["ok", "quarantined"]
    assert rows[1]["reason"] == "storage.row_conflict"
    assert receipt.arrays["seg"].rows == 1


def test_an_empty_shard_has_a_receipt_and_no_rows(
    writer: ChunkWriter, store: Store, make_chunk: MakeChunk
) -> None:
    receipt = writer.write(make_chunk([]))
    assert (receipt.start, receipt.stop, receipt.last) == (0, 0, True)
    assert rows_of(store, receipt, "images") == []
    assert receipt.arrays == {}
