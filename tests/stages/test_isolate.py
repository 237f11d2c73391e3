"""A chunk that keeps failing, labeled sample by sample in a real process that may die."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sapiens_batch.errors import SpecError, WeightsError
from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.records import Chunk, Sample, Status, ViewKind, ViewSpec
from sapiens_batch.spec.job import PersonsSpec
from sapiens_batch.spec.loading import parse_spec
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.flow import LabeledChunk, SuspectChunk
from sapiens_batch.stages.isolate import Setup, isolate
from sapiens_batch.stages.preparer import make_preparer
from sapiens_batch.storage.memory import MemoryStore
from tests.small_tasks import SCHEMAS, SHARD
from tests.synthetic import FAILS, HANGS, KILLS, Synthetic, plain_image

GRAY = plain_image((9, 9, 9))
VIEWS = {"seg": ViewSpec(ViewKind.STRETCH, 8, 6), "pose": ViewSpec(ViewKind.CROP, 8, 6)}


def refuse(context: JobContext, num_threads: int | None) -> None:
    raise WeightsError("model.safetensors is torn")


@pytest.fixture
def setup() -> Setup:
    spec = parse_spec(
        {
            "name": "job",
            "source": {"format": "webdataset", "uri": "in.tar"},
            "persons": {"from": "whole_image"},
            "tasks": {"seg": {"checkpoint": "demo"}, "pose": {"checkpoint": "demo"}},
            "output": {"uri": "memory://job"},
        }
    )
    context = JobContext(spec, {}, SCHEMAS, VIEWS, True, "0" * 64, MemoryStore("isolate"))
    return Setup(context, make_preparer, Synthetic(), None)


def suspect(images: list[bytes]) -> SuspectChunk:
    samples = tuple(Sample(f"key-{i}", i, data) for i, data in enumerate(images))
    header = ChunkHeader(SHARD.shard_id, 0, 0, len(images), last=True)
    return SuspectChunk(header, Chunk(SHARD.shard_id, 0, 0, samples, last=True))


def reasons(labeled: LabeledChunk) -> list[str | None]:
    return [one.problem.reason if one.problem else None for one in labeled.samples]


def test_only_the_sample_that_ends_its_process_is_blamed(setup: Setup) -> None:
    images = [GRAY, plain_image(KILLS), GRAY, plain_image(FAILS), b"no image", GRAY]
    labeled = isolate(suspect(images), setup, timeout_s=60)
    found = reasons(labeled)
    assert found[:4] == [None, "crash", None, "label.failed"]
    assert found[4] is not None and found[4].startswith("decode.")
    assert found[5] is None
    assert [one.sample.index for one in labeled.samples] == [0, 1, 2, 3, 4, 5]
    assert labeled.labels["seg"].rows == (0, 2, 5)
    assert [one.sample for one in labeled.persons] == [0, 2, 5]
    assert labeled.samples[1].status is Status.QUARANTINED
    assert labeled.samples[1].content_sha256 is not None
    assert "SIGKILL" in (labeled.samples[1].problem or pytest.fail()).message


def test_a_sample_that_hangs_is_timed_out(setup: Setup) -> None:
    labeled = isolate(suspect([plain_image(HANGS), GRAY]), setup, timeout_s=10)
    assert reasons(labeled) == ["timeout", None]


def test_a_chunk_without_a_culprit_is_just_labeled(setup: Setup) -> None:
    labeled = isolate(suspect([GRAY, GRAY]), setup, timeout_s=60)
    assert reasons(labeled) == [None, None]


def test_weights_that_cannot_be_loaded_are_nobodys_fault(setup: Setup) -> None:
    broken = Setup(setup.context, make_preparer, refuse, None)  # type: ignore[arg-type]
    with pytest.raises(WeightsError, match="torn"):
        isolate(suspect([GRAY]), broken, timeout_s=60)


def test_a_detector_that_is_not_the_planned_one_is_nobodys_fault(setup: Setup) -> None:
    pytest.importorskip("onnxruntime", reason="the extra `detect` is not installed")
    persons = PersonsSpec.model_validate({"from": "detector"})
    spec = setup.context.spec.model_copy(update={"persons": persons})
    context = replace(setup.context, spec=spec, detector_digest="0" * 64)
    with pytest.raises(SpecError, match="same file on every node"):
        isolate(suspect([GRAY]), replace(setup, context=context), timeout_s=60)
