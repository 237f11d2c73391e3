"""Sealing makes a shard visible once and whole (I2, I5), with arrays complete for anybody (I10)."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import zarr

from sapiens_batch.errors import DamagedReceiptError, ProtocolError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.seal import SealJob, seal_shard
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.stages.write import ChunkWriter
from sapiens_batch.storage import open_store
from tests.small_tasks import CHUNK_SAMPLES, SCHEMAS, SHARD, MakeChunk, seal_job

TODO = ShardTodo(SHARD)


@pytest.fixture
def job(tmp_path: Path) -> SealJob:
    return seal_job(open_store(str(tmp_path)))


@pytest.fixture
def writer(job: SealJob) -> ChunkWriter:
    return ChunkWriter(job.store, SCHEMAS, [], CHUNK_SAMPLES)


def array_keys(job: SealJob) -> set[str]:
    return {info.key for info in job.store.list(keys.ARRAYS)}


def seg_values(path: Path, root: str) -> list[int]:
    """The labels that any Zarr reader finds under a root, one for each of six rows."""
    array = zarr.open(path / root, mode="r")
    assert isinstance(array, zarr.Array)
    assert array.shape == (6, 2, 3)
    return [int(array[row, 0, 0]) for row in range(6)]


def test_a_sealed_shard_has_one_table_file_and_arrays_that_zarr_opens(
    job: SealJob, writer: ChunkWriter, make_chunk: MakeChunk, tmp_path: Path
) -> None:
    writer.write(make_chunk([None, 1], index=1))
    writer.write(make_chunk([1, 0, 2, 1], index=0, last=False))
    commit = seal_shard(job, TODO, {0, 1})
    assert commit.num_samples == 6
    assert (commit.counts.ok, commit.counts.empty, commit.counts.quarantined) == (4, 1, 1)
    images = pq.read_table(tmp_path / commit.tables["images"].key)
    assert images["index"].to_pylist() == [0, 1, 2, 3, 4, 5]
    root = keys.array("seg", SHARD.shard_id)
    assert images["seg_array"].to_pylist() == [root] * 4 + [None, root]
    assert commit.arrays["seg"].root == root
    assert seg_values(tmp_path, root) == [0, 1, 2, 3, 255, 5]


def test_an_attempt_that_died_leaves_the_next_one_a_root_of_its_own(
    job: SealJob, writer: ChunkWriter, make_chunk: MakeChunk, tmp_path: Path
) -> None:
    """Whatever it left, nothing of it is seen: not where both labeled, nor where one did."""
    died = make_chunk([1, 1, 1, 1], index=0, last=False, first=40)
    taken = writer.write(died).arrays["seg"].key
    job.store.delete(keys.receipt(SHARD.shard_id, 0))
    receipt = writer.write(make_chunk([1, None, 1, 1], index=0, last=False))
    assert receipt.arrays["seg"].key != taken
    writer.write(make_chunk([1, 1], index=1))
    commit = seal_shard(job, TODO, {0, 1})
    array = commit.arrays["seg"]
    assert seg_values(tmp_path, array.root) == [0, 255, 2, 3, 4, 5]
    assert {keys.array_root(one.key) for one in (array.metadata, *array.chunks)} == {array.root}
    images = pq.read_table(tmp_path / commit.tables["images"].key)
    assert images["seg_array"].to_pylist() == [array.root, None] + [array.root] * 4


def test_an_attempt_without_a_label_takes_the_name_of_its_array_object(
    job: SealJob, writer: ChunkWriter, make_chunk: MakeChunk, tmp_path: Path
) -> None:
    """Else one that was thought dead could fill the rows of a committed array later."""
    writer.write(make_chunk([None, None, None, None], index=0, last=False))
    writer.write(make_chunk([1, 1], index=1))
    commit = seal_shard(job, TODO, {0, 1})
    before = array_keys(job)
    job.store.delete(keys.receipt(SHARD.shard_id, 0))
    writer.write(make_chunk([1, 1, 1, 1], index=0, last=False))  # it wakes up
    assert all(
        keys.array_root(key) != commit.arrays["seg"].root for key in array_keys(job) - before
    )
    assert seg_values(tmp_path, commit.arrays["seg"].root) == [255, 255, 255, 255, 4, 5]


def test_copies_are_recorded_as_what_they_are_copies_of(
    job: SealJob, writer: ChunkWriter, make_chunk: MakeChunk
) -> None:
    """A bit that rots before the copy is damage of the commit, never certified anew (I8)."""
    for _ in range(2):
        job.store.delete(keys.receipt(SHARD.shard_id, 0))
        receipt = writer.write(make_chunk([1, 1, 1, 1], index=0, last=False))
    writer.write(make_chunk([1, 1], index=1))
    stored = receipt.arrays["seg"]
    data = bytearray(job.store.read(stored.key))
    data[0] ^= 1
    job.store.delete(stored.key)
    job.store.create(stored.key, bytes(data))
    (copied, _) = seal_shard(job, TODO, {0, 1}).arrays["seg"].chunks
    assert copied.sha256 == stored.sha256
    with pytest.raises(ProtocolError, match="damaged"):
        copied.read(job.store)


def test_a_description_that_rotted_before_the_commit_is_not_used(
    job: SealJob, writer: ChunkWriter, make_chunk: MakeChunk, tmp_path: Path
) -> None:
    job.store.create(keys.array_document(keys.array("seg", SHARD.shard_id)), b"{")
    writer.write(make_chunk([1, 1, 1, 1], index=0, last=False))
    writer.write(make_chunk([1, 1], index=1))
    root = seal_shard(job, TODO, {0, 1}).arrays["seg"].root
    assert seg_values(tmp_path, root) == [0, 1, 2, 3, 4, 5]


def test_receipts_with_a_gap_are_not_sealed(
    job: SealJob, writer: ChunkWriter, make_chunk: MakeChunk
) -> None:
    writer.write(make_chunk([1], index=1))
    with pytest.raises(ProtocolError, match="do not reach its end"):
        seal_shard(job, TODO, {1})
    assert not list(job.store.list(keys.COMMITS))


def test_two_drivers_that_seal_the_same_shard_agree_on_one_commit(
    job: SealJob, writer: ChunkWriter, make_chunk: MakeChunk
) -> None:
    writer.write(make_chunk([1, 2]))
    first = seal_shard(job, TODO, {0})
    assert seal_shard(job, TODO, {0}) == first


def test_a_driver_that_comes_after_the_receipts_were_removed_finds_the_commit(
    job: SealJob, writer: ChunkWriter, make_chunk: MakeChunk
) -> None:
    writer.write(make_chunk([1, 2]))
    first = seal_shard(job, TODO, {0})
    job.store.delete(keys.receipt(SHARD.shard_id, 0))
    assert seal_shard(job, TODO, {0}) == first


def test_a_lost_receipt_without_a_commit_is_told(
    job: SealJob, writer: ChunkWriter, make_chunk: MakeChunk
) -> None:
    writer.write(make_chunk([1]))
    job.store.delete(keys.receipt(SHARD.shard_id, 0))
    with pytest.raises(DamagedReceiptError, match="the receipt is lost"):
        seal_shard(job, TODO, {0})


def test_a_lost_array_object_that_must_be_copied_is_told(
    job: SealJob, writer: ChunkWriter, make_chunk: MakeChunk
) -> None:
    for _ in range(2):
        job.store.delete(keys.receipt(SHARD.shard_id, 0))
        receipt = writer.write(make_chunk([1, 1, 1, 1], index=0, last=False))
    writer.write(make_chunk([1], index=1))
    job.store.delete(receipt.arrays["seg"].key)
    with pytest.raises(DamagedReceiptError, match="names a lost object"):
        seal_shard(job, TODO, {0, 1})


def test_an_empty_shard_is_sealed_with_an_empty_table(
    job: SealJob, writer: ChunkWriter, make_chunk: MakeChunk, tmp_path: Path
) -> None:
    writer.write(make_chunk([]))
    commit = seal_shard(job, TODO, {0})
    assert (commit.num_samples, commit.arrays) == (0, {})
    assert pq.read_table(tmp_path / commit.tables["images"].key).num_rows == 0
    text = (tmp_path / keys.commit(SHARD.shard_id)).read_text()
    assert json.loads(text)["counts"] == {"ok": 0, "empty": 0, "quarantined": 0, "persons": 0}


def test_what_sealing_needs_can_be_sent_to_a_worker(
    job: SealJob, writer: ChunkWriter, make_chunk: MakeChunk
) -> None:
    writer.write(make_chunk([1]))
    assert seal_shard(pickle.loads(pickle.dumps(job)), TODO, {0}).num_samples == 1
