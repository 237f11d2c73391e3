"""Labeling some samples again: a new generation takes the other rows over, bit by bit (I2, I7)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import zarr

from sapiens_batch.errors import ProtocolError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.documents import StoredObject
from sapiens_batch.protocol.seal import SealJob, seal_shard
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.stages.flow import LabeledChunk
from sapiens_batch.stages.join import join_chunks
from sapiens_batch.stages.write import ChunkWriter
from sapiens_batch.storage import Store, open_store
from tests.small_tasks import CHUNK_SAMPLES, SCHEMAS, SHARD, MakeChunk, seal_job


@pytest.fixture
def job(tmp_path: Path) -> SealJob:
    return seal_job(open_store(str(tmp_path)))


@pytest.fixture
def writer(job: SealJob) -> ChunkWriter:
    return ChunkWriter(job.store, SCHEMAS, [], CHUNK_SAMPLES)


@pytest.fixture
def first(job: SealJob, writer: ChunkWriter, make_chunk: MakeChunk) -> Commit:
    """Six samples in two chunks; samples 1 and 4 are quarantined."""
    writer.write(make_chunk([2, None, 0, 1], index=0, last=False))
    writer.write(make_chunk([None, 1], index=1))
    return seal_shard(job, ShardTodo(SHARD), {0, 1})


def relabeled(make_chunk: MakeChunk, ordered: int, persons: int) -> LabeledChunk:
    """The chunk of one ordered sample, with that sample alone in it."""
    index, position = divmod(ordered, CHUNK_SAMPLES)
    whole = make_chunk([0] * position + [persons], index=index, last=index == 1)
    alone = LabeledChunk(
        whole.header,
        whole.samples[position:],
        tuple(replace(one, sample=0) for one in whole.persons),
        {
            "seg": replace(
                whole.labels["seg"],
                labels=_last(whole, "seg"),
                rows=(0,),
            ),
            "pose": whole.labels["pose"],
        },
        {},
    )
    stop = (CHUNK_SAMPLES, 6)[index]
    header = replace(whole.header, stop=stop, generation=1, ordered=frozenset({ordered}))
    return replace(alone, header=header)


def _last(chunk: LabeledChunk, task: str) -> object:
    labels = chunk.labels[task].labels  # type: ignore[index]
    return replace(
        labels,
        columns={name: values[-1:] for name, values in labels.columns.items()},
        array=None if labels.array is None else labels.array[-1:],
        frames=labels.frames[-1:],
        problems=labels.problems[-1:],
    )


def test_a_relabeled_sample_changes_its_own_row_and_no_other(
    job: SealJob, writer: ChunkWriter, make_chunk: MakeChunk, first: Commit, tmp_path: Path
) -> None:
    receipt = writer.write(relabeled(make_chunk, 1, persons=1))
    assert (receipt.start, receipt.stop, receipt.last) == (0, 4, False)
    assert (receipt.counts.ok, receipt.counts.empty, receipt.counts.quarantined) == (3, 1, 0)
    todo = ShardTodo(SHARD, frozenset({1}), 1, frozenset({1}))
    second = seal_shard(job, todo, {0})

    assert second.generation == 1
    assert [tuple(one[:2]) for one in second.chunks] == [(0, 4), (4, 6)]
    assert second.chunks[1] == first.chunks[1], "the chunk that was not ordered is taken over"
    assert (second.counts.ok, second.counts.quarantined, second.counts.persons) == (4, 1, 5)
    assert second.reasons == {"decode.truncated": 1}

    before = pq.read_table(tmp_path / first.tables["images"].key)
    after = pq.read_table(tmp_path / second.tables["images"].key)
    assert after.schema.equals(before.schema, check_metadata=True)
    assert after["index"].to_pylist() == [0, 1, 2, 3, 4, 5]
    untouched = after.drop(["seg_array"]), before.drop(["seg_array"])
    for row in (0, 2, 3, 4, 5):
        assert untouched[0].slice(row, 1).equals(untouched[1].slice(row, 1))
    root = second.arrays["seg"].root
    assert after["seg_array"].to_pylist() == [root] * 4 + [None, root]
    assert after["status"].to_pylist()[1] == "ok"
    assert after["seg_row"].to_pylist() == [0, 1, 2, 3, None, 5]
    persons = pq.read_table(tmp_path / second.tables["persons"].key)
    assert persons["index"].to_pylist() == [0, 0, 1, 3, 5]


def test_the_array_of_a_generation_holds_every_labeled_row(
    job: SealJob, writer: ChunkWriter, make_chunk: MakeChunk, first: Commit, tmp_path: Path
) -> None:
    writer.write(relabeled(make_chunk, 1, persons=1))
    second = seal_shard(job, ShardTodo(SHARD, frozenset({1}), 1, frozenset({1})), {0})
    before, after = first.arrays["seg"], second.arrays["seg"]
    assert after.chunks[1].sha256 == before.chunks[1].sha256
    assert after.chunks[0].sha256 != before.chunks[0].sha256
    array = zarr.open(tmp_path / after.root, mode="r")
    assert isinstance(array, zarr.Array)
    assert [int(array[row].max()) for row in range(6)] == [0, 1, 2, 3, 255, 5]


def test_the_first_commit_stays_as_it_is(
    job: SealJob, writer: ChunkWriter, make_chunk: MakeChunk, first: Commit
) -> None:
    stored = {info.key: job.store.read(info.key) for info in job.store.list(keys.COMMITS)}
    writer.write(relabeled(make_chunk, 4, persons=2))
    seal_shard(job, ShardTodo(SHARD, frozenset({0}), 1, frozenset({4})), {1})
    for key, data in stored.items():
        assert job.store.read(key) == data
    assert job.store.exists(keys.commit(SHARD.shard_id, 1))


def test_an_order_without_samples_writes_metadata_and_commit_anew(
    job: SealJob, first: Commit
) -> None:
    second = seal_shard(job, ShardTodo(SHARD, frozenset({0, 1}), 1, frozenset()), [])
    assert second.counts == first.counts
    before, after = first.arrays["seg"], second.arrays["seg"]
    assert [one.sha256 for one in after.chunks] == [one.sha256 for one in before.chunks]
    assert after.metadata.key != before.metadata.key


def damage(store: Store, stored: StoredObject) -> None:
    """Flip a bit in the middle of an object, as failing hardware does."""
    data = bytearray(store.read(stored.key))
    data[len(data) // 2] ^= 8
    store.delete(stored.key)
    store.create(stored.key, bytes(data))


def test_damage_of_the_commit_before_is_named_not_copied(
    job: SealJob, writer: ChunkWriter, make_chunk: MakeChunk, first: Commit
) -> None:
    damage(job.store, first.tables["images"])
    with pytest.raises(ProtocolError, match=f"{first.tables['images'].key}.*verify --repair"):
        writer.write(relabeled(make_chunk, 1, persons=1))
    with pytest.raises(ProtocolError, match=f"{first.tables['images'].key}.*verify --repair"):
        seal_shard(job, ShardTodo(SHARD, frozenset({0, 1}), 1, frozenset()), [])
    assert not job.store.exists(keys.commit(SHARD.shard_id, 1))


def test_damage_of_an_array_before_is_named_not_copied(
    job: SealJob, writer: ChunkWriter, make_chunk: MakeChunk, first: Commit
) -> None:
    stored = first.arrays["seg"].chunks[0]
    damage(job.store, stored)
    with pytest.raises(ProtocolError, match=f"{stored.key}.*verify --repair"):
        writer.write(relabeled(make_chunk, 1, persons=1))
    # the other chunk is taken over whole: its record says what it should be
    writer.write(relabeled(make_chunk, 4, persons=1))
    second = seal_shard(job, ShardTodo(SHARD, frozenset({0}), 1, frozenset({4})), {1})
    assert second.arrays["seg"].chunks[0].sha256 == stored.sha256


def test_a_relabeled_sample_without_an_earlier_commit_is_refused(
    writer: ChunkWriter, make_chunk: MakeChunk
) -> None:
    with pytest.raises(ProtocolError, match="no earlier one is committed"):
        writer.write(relabeled(make_chunk, 1, persons=1))


def test_single_samples_join_to_the_chunk_that_they_were(make_chunk: MakeChunk) -> None:
    whole = make_chunk([2, 0, 1])
    singles = []
    for position, count in enumerate([2, 0, 1]):
        one = make_chunk([0] * position + [count])
        singles.append(
            LabeledChunk(
                one.header,
                one.samples[position:],
                tuple(replace(person, sample=0) for person in one.persons),
                {
                    "seg": replace(one.labels["seg"], labels=_last(one, "seg"), rows=(0,)),
                    "pose": one.labels["pose"],
                },
                {"label": 0.25},
            )
        )
    joined = join_chunks(whole.header, SCHEMAS, singles)
    assert joined.samples == whole.samples
    assert [(one.sample, one.person) for one in joined.persons] == [(0, 0), (0, 1), (2, 0)]
    assert joined.labels["seg"].rows == (0, 1, 2)
    assert joined.labels["seg"].labels.array is not None
    assert [int(row.max()) for row in joined.labels["seg"].labels.array] == [0, 1, 2]
    assert joined.labels["pose"].rows == (0, 1, 2)
    assert joined.timings_s == {"label": 0.75}
