"""What receipts make of a shard: when a shard is complete, and what is left after a crash."""

from __future__ import annotations

import pytest

from sapiens_batch.protocol.open_shard import OpenShard
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.stages.write import ChunkWriter
from sapiens_batch.storage.memory import MemoryStore
from tests.small_tasks import CHUNK_SAMPLES, SCHEMAS, SHARD, labeled_chunk


@pytest.fixture
def writer(request: pytest.FixtureRequest) -> ChunkWriter:
    return ChunkWriter(MemoryStore(request.node.name), SCHEMAS, [], CHUNK_SAMPLES)


def open_shard(*done: int, samples: set[int] | None = None) -> OpenShard:
    ordered = None if samples is None else frozenset(samples)
    return OpenShard(ShardTodo(SHARD, frozenset(done), samples=ordered), set(done))


def test_a_shard_is_complete_with_its_last_chunk_and_all_before_it(writer: ChunkWriter) -> None:
    shard = open_shard()
    assert shard.add(writer.write(labeled_chunk([1, 1], index=1)))
    assert not shard.is_complete(CHUNK_SAMPLES)
    assert shard.add(writer.write(labeled_chunk([1, 1, 1, 1], index=0, last=False)))
    assert shard.is_complete(CHUNK_SAMPLES)


def test_chunks_of_an_earlier_run_count(writer: ChunkWriter) -> None:
    shard = open_shard(0)
    assert not shard.is_complete(CHUNK_SAMPLES)
    assert shard.add(writer.write(labeled_chunk([1], index=1)))
    assert shard.is_complete(CHUNK_SAMPLES)


def test_a_receipt_counts_once(writer: ChunkWriter) -> None:
    receipt = writer.write(labeled_chunk([1, 1]))
    shard = open_shard()
    assert [shard.add(receipt), shard.add(receipt)] == [True, False]


def test_ordered_samples_are_complete_with_their_chunks() -> None:
    assert not open_shard(0, samples={1, 5}).is_complete(CHUNK_SAMPLES)
    assert open_shard(0, 1, samples={1, 5}).is_complete(CHUNK_SAMPLES)
    assert open_shard(samples=set()).is_complete(CHUNK_SAMPLES)


def test_what_is_left_is_frozen(writer: ChunkWriter) -> None:
    shard = open_shard(2)
    rest = shard.rest()
    shard.add(writer.write(labeled_chunk([1, 1, 1, 1], last=False)))
    assert rest.done_chunks == {2}
    assert shard.rest().done_chunks == {0, 2}


def test_spans_share_the_chunks_of_a_shard_between_them() -> None:
    spans = [ShardTodo(SHARD, frozenset({4}), span=(number, 3)) for number in range(3)]
    owners = [[chunk for chunk in range(8) if not span.skips(chunk)] for span in spans]
    assert owners == [[0, 3, 6], [1, 7], [2, 5]]
