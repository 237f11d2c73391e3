"""Labeling some samples again: a new generation takes the other rows over, bit by bit (I2, I7)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sapiens_batch.errors import ProtocolError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.seal import seal_shard
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.sinks import zarr
from sapiens_batch.spec.loading import parse_spec
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.flow import LabeledChunk
from sapiens_batch.stages.join import join_chunks
from sapiens_batch.stages.write import ChunkWriter
from sapiens_batch.storage import open_store
from tests.small_tasks import CHUNK_SAMPLES, SCHEMAS, SEG, SHARD, MakeChunk

FIRST = ShardTodo(SHARD, frozenset())


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


@pytest.fixture
def first(context: JobContext, writer: ChunkWriter, make_chunk: MakeChunk) -> Commit:
    """Six samples in two chunks; samples 1 and 4 are quarantined."""
    receipts = [
        writer.write(make_chunk([2, None, 0, 1], index=0, last=False)),
        writer.write(make_chunk([None, 1], index=1)),
    ]
    return seal_shard(context, FIRST, receipts)


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
    context: JobContext, writer: ChunkWriter, make_chunk: MakeChunk, first: Commit, tmp_path: Path
) -> None:
    receipt = writer.write(relabeled(make_chunk, 1, persons=1))
    assert (receipt.start, receipt.stop, receipt.last) == (0, 4, False)
    assert (receipt.counts.ok, receipt.counts.empty, receipt.counts.quarantined) == (3, 1, 0)
    todo = ShardTodo(SHARD, frozenset({1}), 1, frozenset({1}))
    second = seal_shard(context, todo, [receipt])

    assert second.generation == 1
    assert [tuple(one[:2]) for one in second.chunks] == [(0, 4), (4, 6)]
    assert second.chunks[1] == first.chunks[1], "the chunk that was not ordered is taken over"
    assert (second.counts.ok, second.counts.quarantined, second.counts.persons) == (4, 1, 5)
    assert second.reasons == {"decode.truncated": 1}

    before = pq.read_table(tmp_path / first.tables["images"].key)
    after = pq.read_table(tmp_path / second.tables["images"].key)
    assert after.schema.equals(before.schema, check_metadata=True)
    assert after["index"].to_pylist() == [0, 1, 2, 3, 4, 5]
    for row in (0, 2, 3, 4, 5):
        assert after.slice(row, 1).equals(before.slice(row, 1))
    assert after["status"].to_pylist()[1] == "ok"
    assert after["seg_row"].to_pylist() == [0, 1, 2, 3, None, 5]
    persons = pq.read_table(tmp_path / second.tables["persons"].key)
    assert persons["index"].to_pylist() == [0, 0, 1, 3, 5]


def test_array_rows_that_were_not_ordered_keep_their_bytes(
    context: JobContext, writer: ChunkWriter, make_chunk: MakeChunk, first: Commit
) -> None:
    receipt = writer.write(relabeled(make_chunk, 1, persons=1))
    second = seal_shard(context, ShardTodo(SHARD, frozenset({1}), 1, frozenset({1})), [receipt])
    before, after = first.arrays["seg"], second.arrays["seg"]
    assert after.chunks[1] == before.chunks[1]
    assert after.chunks[0].key != before.chunks[0].key
    assert SEG.array is not None
    data = context.store.read(after.chunks[0].key)
    assert zarr.present_rows(data, CHUNK_SAMPLES) == [True, True, True, True]
    values = dict(zarr.decode_rows(SEG.array, data, CHUNK_SAMPLES))
    assert {row: int(value.max()) for row, value in values.items()} == {0: 0, 1: 1, 2: 2, 3: 3}


def test_the_first_commit_stays_as_it_is(
    context: JobContext, writer: ChunkWriter, make_chunk: MakeChunk, first: Commit
) -> None:
    stored = {info.key: context.store.read(info.key) for info in context.store.list(keys.COMMITS)}
    receipt = writer.write(relabeled(make_chunk, 4, persons=2))
    seal_shard(context, ShardTodo(SHARD, frozenset({0}), 1, frozenset({4})), [receipt])
    for key, data in stored.items():
        assert context.store.read(key) == data
    assert context.store.exists(keys.commit(SHARD.shard_id, 1))


def test_an_order_without_samples_writes_metadata_and_commit_anew(
    context: JobContext, first: Commit
) -> None:
    second = seal_shard(context, ShardTodo(SHARD, frozenset({0, 1}), 1, frozenset()), [])
    assert second.counts == first.counts
    assert second.arrays["seg"].chunks == first.arrays["seg"].chunks
    assert second.arrays["seg"].metadata.key != first.arrays["seg"].metadata.key


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
