"""A flipped byte in any object that a commit names is found, and healed by the job's own writer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sapiens_batch.labelset import LabelSet, open_labels
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.protocol.seal import seal_shard
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.records import Level
from sapiens_batch.sinks.parquet import decode
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.flow import LabeledChunk
from sapiens_batch.stages.write import ChunkWriter
from sapiens_batch.storage import open_store
from sapiens_batch.verify import check_job, order_repairs
from tests import labeled_job

NUM_SAMPLES, CHUNK_SAMPLES, ROW_SIZE = 10, 4, (32, 24)
TASKS = ("embedding", "pose", "seg")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("job") / "labels"
    return labeled_job.make_labeled_job(
        path, num_samples=NUM_SAMPLES, chunk_samples=CHUNK_SAMPLES, row_size=ROW_SIZE, tasks=TASKS
    )


def context_of(manifest: Manifest) -> JobContext:
    path = Path(manifest.store.uri)
    return JobContext(
        spec=labeled_job._spec(path, path.with_name("labels-corpus"), CHUNK_SAMPLES, TASKS),
        checkpoints={},
        schemas={one.task: one for one in manifest.job.label_schemas},
        task_views={},
        finds_persons=True,
        spec_digest=manifest.job.spec_digest,
        store=manifest.store,
    )


def carry_out(manifest: Manifest, todo: ShardTodo) -> None:
    """Label what an order asks for, with the labels that the job was made with."""
    context = context_of(manifest)
    writer = ChunkWriter(context.store, context.schemas, (), CHUNK_SAMPLES)
    chunks = []
    for index, start in enumerate(range(0, NUM_SAMPLES, CHUNK_SAMPLES)):
        stop = min(start + CHUNK_SAMPLES, NUM_SAMPLES)
        if index in todo.done_chunks:
            continue
        header = ChunkHeader(
            todo.shard.shard_id, index, start, stop, stop == NUM_SAMPLES,
            generation=todo.generation,
            ordered=None if todo.samples is None else todo.samples & set(range(start, stop)),
        )  # fmt: skip
        chunk: LabeledChunk = labeled_job._chunk(header, range(start, stop), context, 0, 0)
        writer.write(chunk)
        chunks.append(index)
    seal_shard(context.seal_job, todo, chunks)


def everything(labels: LabelSet) -> dict[str, object]:
    """All labels, to compare two openings of a job; as text, where NaN equals NaN."""
    seg = labels.array("seg")
    (shard_id,) = labels.commits
    return {
        "images": str(labels.images.to_table().drop(["seg_array"]).to_pylist()),
        "persons": str(labels.persons.to_table().to_pylist()),
        "seg": {row: values.tolist() for row, values in seg.rows(shard_id)},
    }


def test_a_flipped_byte_in_any_named_object_is_found_and_healed(root: Path) -> None:
    expected = everything(open_labels(str(root)))
    rng = np.random.default_rng(7)
    for number in range(7):
        manifest = Manifest.open(open_store(str(root)))
        (commit,) = manifest.commits()
        seg = commit.arrays["seg"]
        named = [*commit.tables.values(), seg.metadata, *seg.chunks]
        stored = named[number % len(named)]
        damaged = bytearray((root / stored.key).read_bytes())
        damaged[int(rng.integers(len(damaged)))] ^= 1 << int(rng.integers(8))
        (root / stored.key).write_bytes(damaged)

        report = check_job(manifest)
        assert [finding.key for finding in report.findings] == [stored.key]
        (order,), beyond = order_repairs(manifest, report)
        assert beyond == []
        (todo,) = manifest.todo()
        assert todo.generation == order.generation == number + 1
        carry_out(manifest, todo)

        assert not check_job(manifest).damaged
        assert everything(open_labels(str(root))) == expected
        assert manifest.commit(commit.shard_id, commit.generation) == commit
    table = decode((root / manifest.commit(commit.shard_id).tables["images"].key).read_bytes())
    assert table.num_rows == NUM_SAMPLES
    assert Level.PERSON.table in commit.tables
