"""Sealing makes a shard visible once and whole (I2, I5), and cleans up after itself."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import zarr

from sapiens_batch.errors import ProtocolError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.seal import seal_shard
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.spec.loading import parse_spec
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.write import ChunkWriter
from sapiens_batch.storage import open_store
from tests.small_tasks import CHUNK_SAMPLES, SCHEMAS, SHARD, MakeChunk


@pytest.fixture
def context(tmp_path: Path) -> JobContext:
    spec = parse_spec(
        {
            "name": "job",
            "source": {"format": "webdataset", "uri": "in.tar"},
            "tasks": {"seg": {"checkpoint": "demo"}, "pose": {"checkpoint": "demo"}},
            "output": {"uri": str(tmp_path), "chunk_samples": CHUNK_SAMPLES},
        }
    )
    return JobContext(spec, {}, SCHEMAS, {}, True, "0" * 64, open_store(str(tmp_path)))


@pytest.fixture
def writer(context: JobContext) -> ChunkWriter:
    return ChunkWriter(context.store, SCHEMAS, [], CHUNK_SAMPLES)


def test_a_sealed_shard_has_one_table_file_and_arrays_that_zarr_opens(
    context: JobContext, writer: ChunkWriter, make_chunk: MakeChunk, tmp_path: Path
) -> None:
    receipts = [
        writer.write(make_chunk([None, 1], index=1)),
        writer.write(make_chunk([1, 0, 2, 1], index=0, last=False)),
    ]
    commit = seal_shard(context, ShardTodo(SHARD, frozenset()), receipts)
    assert commit.num_samples == 6
    assert (commit.counts.ok, commit.counts.empty, commit.counts.quarantined) == (4, 1, 1)
    images = pq.read_table(tmp_path / commit.tables["images"].key)
    assert images["index"].to_pylist() == [0, 1, 2, 3, 4, 5]
    array = zarr.open(tmp_path / commit.arrays["seg"].root, mode="r")
    assert isinstance(array, zarr.Array)
    assert array.shape == (6, 2, 3)
    assert [int(array[row, 0, 0]) for row in range(6)] == [0, 1, 2, 3, 255, 5]
    assert not list(context.store.list(keys.PARTS)), "parts are removed once they are merged"


def test_receipts_with_a_gap_are_not_sealed(
    context: JobContext, writer: ChunkWriter, make_chunk: MakeChunk
) -> None:
    receipts = [writer.write(make_chunk([1], index=1))]
    with pytest.raises(ProtocolError):
        seal_shard(context, ShardTodo(SHARD, frozenset()), receipts)
    assert not list(context.store.list(keys.COMMITS))


def test_two_drivers_that_seal_the_same_shard_agree_on_one_commit(
    context: JobContext, writer: ChunkWriter, make_chunk: MakeChunk
) -> None:
    receipts = [writer.write(make_chunk([1, 2]))]
    first = seal_shard(context, ShardTodo(SHARD, frozenset()), receipts)
    assert seal_shard(context, ShardTodo(SHARD, frozenset()), receipts) == first
    tables = {info.key for info in context.store.list(keys.TABLES)}
    assert tables == {table.key for table in first.tables.values()}


def test_a_lost_part_without_a_commit_is_told(
    context: JobContext, writer: ChunkWriter, make_chunk: MakeChunk
) -> None:
    receipt = writer.write(make_chunk([1]))
    context.store.delete(receipt.parts["images"].key)
    with pytest.raises(ProtocolError, match="lost part"):
        seal_shard(context, ShardTodo(SHARD, frozenset()), [receipt])


def test_an_empty_shard_is_sealed_with_an_empty_table(
    context: JobContext, writer: ChunkWriter, make_chunk: MakeChunk, tmp_path: Path
) -> None:
    commit = seal_shard(context, ShardTodo(SHARD, frozenset()), [writer.write(make_chunk([]))])
    assert commit.num_samples == 0
    assert pq.read_table(tmp_path / commit.tables["images"].key).num_rows == 0
    text = (tmp_path / keys.commit(SHARD.shard_id)).read_text()
    assert json.loads(text)["counts"] == {"ok": 0, "empty": 0, "quarantined": 0, "persons": 0}
