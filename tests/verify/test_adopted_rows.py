"""An array object may hold more rows than the tables point at: an attempt that died stored them."""

from __future__ import annotations

import uuid
from dataclasses import asdict, replace

import numpy as np
import pytest

from sapiens_batch.failpoints import FAULTS_VARIABLE, InjectedFaultError, arm
from sapiens_batch.labelset import LabelSet
from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.plan import write_plan
from sapiens_batch.protocol.seal import seal_shard
from sapiens_batch.records import Problem
from sapiens_batch.sinks import label_schema as schema_json
from sapiens_batch.spec.loading import parse_spec
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.flow import LabeledChunk
from sapiens_batch.stages.write import ChunkWriter
from sapiens_batch.storage.memory import MemoryStore
from sapiens_batch.verify import check_job
from tests.small_tasks import CHUNK_SAMPLES, SCHEMAS, SHARD, labeled_chunk

DIGEST = "0" * 64
CRASH = Problem("crash", "decoding or labeling it alone ends its process")


@pytest.fixture
def context() -> JobContext:
    store = MemoryStore(uuid.uuid4().hex)
    spec = parse_spec(
        {
            "name": "job",
            "source": {"format": "webdataset", "uri": "in.tar"},
            "tasks": {name: {"checkpoint": "demo"} for name in SCHEMAS},
            "output": {"uri": store.uri, "chunk_samples": CHUNK_SAMPLES},
        }
    )
    document = JobDocument(
        name="job",
        spec={},
        spec_digest=DIGEST,
        schemas=tuple(schema_json.to_json(one) for one in SCHEMAS.values()),
        capabilities=asdict(store.probe()),
    )
    write_plan(Manifest.create(store, document).store, [SHARD])
    return JobContext(spec, {}, SCHEMAS, {}, True, DIGEST, store)


@pytest.fixture
def commit(
    context: JobContext, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Commit:
    """An attempt stored rows of samples 0 to 2 and died; the next one quarantined sample 1."""
    writer = ChunkWriter(context.store, SCHEMAS, [], CHUNK_SAMPLES)
    faults = tmp_path_factory.mktemp("faults")
    monkeypatch.setenv(FAULTS_VARIABLE, str(faults))
    arm(faults, "after-arrays", "raise")
    with pytest.raises(InjectedFaultError):
        writer.write(labeled_chunk([1, 1, 1]))
    receipt = writer.write(crashed(labeled_chunk([1, None, 1])))
    assert receipt.reasons == {"crash": 1}
    (todo,) = Manifest.open(context.store).todo()
    return seal_shard(context, todo, [receipt])


def crashed(chunk: LabeledChunk) -> LabeledChunk:
    """The chunk as `isolate` leaves it: what it blames has no labels and a reason of its own."""
    samples = [replace(one, problem=one.problem and CRASH) for one in chunk.samples]
    return replace(chunk, samples=tuple(samples), header=replace(chunk.header, isolated=True))


def test_the_job_is_sound_and_the_object_is_as_recorded(
    context: JobContext, commit: Commit
) -> None:
    (stored,) = commit.arrays["seg"].chunks
    assert stored.rows == 3, "rows are those of the object, not those of the tables"
    report = check_job(Manifest.open(context.store))
    assert (report.findings, report.exit_code) == ((), 0)


def test_a_reader_sees_no_labels_of_the_sample(context: JobContext, commit: Commit) -> None:
    labels = LabelSet(Manifest.open(context.store))
    for index, has_labels in enumerate((True, False, True)):
        found = labels.sample_at(SHARD.shard_id, index)
        assert (found.row["seg_row"] is not None) is has_labels
        assert (found.array("seg") is not None) is has_labels
        assert (found.row["status"], found.row["reason"]) == (
            ("ok", None) if has_labels else ("quarantined", "crash")
        )


@pytest.mark.parametrize("ordered", [0, 1], ids=["another", "the same"])
def test_it_stays_sound_when_a_sample_is_labeled_again(
    context: JobContext, commit: Commit, ordered: int
) -> None:
    manifest = Manifest.open(context.store)
    manifest.relabel(SHARD.shard_id, [ordered], cause="retry")
    (todo,) = manifest.todo()
    alone = labeled_chunk([1], first=ordered)
    header = replace(
        alone.header, start=0, stop=3, generation=1, ordered=frozenset({ordered}), last=True
    )
    receipt = ChunkWriter(context.store, SCHEMAS, [], CHUNK_SAMPLES).write(
        replace(alone, header=header)
    )
    seal_shard(context, todo, [receipt])
    report = check_job(Manifest.open(context.store))
    assert (report.findings, report.exit_code) == ((), 0)
    assert report.counts.ok == (3 if ordered == 1 else 2)
    labels = LabelSet(Manifest.open(context.store))
    found = labels.sample_at(SHARD.shard_id, 1).array("seg")
    if ordered == 1:
        np.testing.assert_array_equal(found, np.ones((2, 3), np.uint8))
    else:
        assert found is None
