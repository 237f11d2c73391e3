"""The label actor without Ray: who has the device, what counts as an attempt, what is isolated."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pytest

from sapiens_batch.errors import WeightsError
from sapiens_batch.protocol import keys
from sapiens_batch.records import Chunk, Sample, TaskLabels, TaskName, ViewBatch, ViewSpec
from sapiens_batch.stages.attempts import AttemptCounter, Work, chunk_work
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.flow import Outcome, PreparedChunk, SuspectChunk, pack, unpack
from sapiens_batch.stages.label import LabelChunk
from sapiens_batch.stages.preparer import make_preparer
from sapiens_batch.storage.memory import MemoryStore
from tests.small_jobs import small_context
from tests.small_tasks import SHARD
from tests.synthetic import FAILS, Synthetic, SyntheticLabeler, plain_image

MAX_ATTEMPTS = 2
GRAY = plain_image((9, 9, 9))


class SlowStore(MemoryStore):
    """Memory that waits before it takes a receipt, until it is told to go on."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.go_on = threading.Event()
        self.go_on.set()
        self.waiting = threading.Semaphore(0)

    def create(self, key: str, data: bytes) -> bool:
        if key.startswith(keys.RECEIPTS):
            self.waiting.release()
            assert self.go_on.wait(20)
        return super().create(key, data)


@dataclass
class Labeler:
    """Labels as `SyntheticLabeler` does, and keeps count."""

    inner: SyntheticLabeler
    calls: int = 0
    trouble: Callable[[], None] = lambda: None

    def label(self, views: Mapping[ViewSpec, ViewBatch]) -> dict[TaskName, TaskLabels]:
        self.calls += 1
        self.trouble()
        return self.inner.label(views)


@dataclass
class Actor:
    """A label actor with what it stands on."""

    context: JobContext
    labeler: Labeler
    attempts: AttemptCounter
    store: SlowStore

    def __post_init__(self) -> None:
        self.stage = LabelChunk(self.context, None, self.load, self.attempts)

    def load(self, context: JobContext, num_threads: int | None) -> Labeler:
        return self.labeler

    def restarted(self) -> Actor:
        """What Ray starts in place of an actor that died."""
        return replace(self)

    def __call__(self, record: PreparedChunk | SuspectChunk) -> Outcome:
        outcome: Outcome = unpack(self.stage(pack(record)))
        return outcome


@pytest.fixture
def actor(request: pytest.FixtureRequest) -> Actor:
    store = SlowStore(request.node.name)
    context = small_context(store, errors={"max_attempts": MAX_ATTEMPTS})
    labeler = Labeler(SyntheticLabeler(Synthetic(), context))
    return Actor(context, labeler, AttemptCounter(), store)


def suspect(index: int, image: bytes = GRAY) -> SuspectChunk:
    samples = tuple(Sample(f"{index}-{i}", 2 * index + i, image) for i in range(2))
    chunk = Chunk(SHARD.shard_id, index, 2 * index, samples, last=index == 9)
    header = make_preparer(small_context(MemoryStore("none"))).prepare(chunk).header
    return SuspectChunk(header, chunk)


def prepared(index: int, image: bytes = GRAY) -> PreparedChunk:
    return make_preparer(small_context(MemoryStore("none"))).prepare(suspect(index, image).chunk)


def test_a_chunk_comes_through_and_its_receipt_with_it(actor: Actor) -> None:
    outcome = actor(prepared(0))
    assert outcome.failure is None
    assert outcome.receipt is not None and outcome.receipt.counts.ok == 2
    assert actor.attempts.unfinished() == [chunk_work(prepared(0).header)]
    actor(prepared(1))
    assert actor.attempts.unfinished() == [chunk_work(prepared(1).header)], "one call a chunk"


def test_the_next_chunk_is_labeled_while_one_is_being_stored(actor: Actor) -> None:
    actor.store.go_on.clear()
    with ThreadPoolExecutor(3) as threads:
        calls = [threads.submit(actor, prepared(index)) for index in range(3)]
        for _ in range(3):
            assert actor.store.waiting.acquire(timeout=20)
        assert actor.labeler.calls == 3
        actor.store.go_on.set()
        assert all(call.result(20).receipt is not None for call in calls)


def test_a_chunk_that_was_begun_before_has_the_actor_to_itself(actor: Actor) -> None:
    again = prepared(1)
    actor.attempts.begin(chunk_work(again.header))
    actor.store.go_on.clear()
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(actor, prepared(0))
        assert actor.store.waiting.acquire(timeout=20)
        alone = threads.submit(actor, again)
        assert not actor.store.waiting.acquire(timeout=0.3)
        assert actor.labeler.calls == 1, "it waits until the chunk before it is stored"
        actor.store.go_on.set()
        assert first.result(20).receipt is not None
        assert alone.result(20).receipt is not None
    assert actor.labeler.calls == 2


def test_nothing_is_begun_beside_a_chunk_that_was_begun_before(actor: Actor) -> None:
    again = prepared(1)
    actor.attempts.begin(chunk_work(again.header))
    actor.store.go_on.clear()
    with ThreadPoolExecutor(3) as threads:
        alone = threads.submit(actor, again)
        assert actor.store.waiting.acquire(timeout=20)
        other = threads.submit(actor, prepared(2))
        assert not actor.store.waiting.acquire(timeout=0.3)
        assert chunk_work(prepared(2).header) not in actor.attempts.unfinished()
        actor.store.go_on.set()
        assert alone.result(20).receipt is not None
        assert other.result(20).receipt is not None


def test_a_chunk_that_used_up_its_attempts_is_sent_back_without_a_label(actor: Actor) -> None:
    work = chunk_work(prepared(0).header)
    for _ in range(MAX_ATTEMPTS):
        actor.attempts.begin(work)
    failure = actor(prepared(0)).failure
    assert failure is not None and failure.suspect
    assert "begun 2 times and never finished" in failure.message
    assert actor.labeler.calls == 0
    assert actor.attempts.begin(work) == MAX_ATTEMPTS, "sending it back is no attempt"


def test_a_chunk_whose_worker_died_after_its_receipt_is_not_labeled_again(actor: Actor) -> None:
    first = actor(prepared(0))
    again = actor.restarted()(prepared(0))
    assert again.receipt == first.receipt
    assert actor.labeler.calls == 1


def test_an_exception_counts_and_makes_suspect_in_the_end(actor: Actor) -> None:
    failures = [actor(prepared(0, plain_image(FAILS))).failure for _ in range(MAX_ATTEMPTS)]
    assert [one is not None and one.suspect for one in failures] == [False, True]
    assert failures[0] is not None and "ValueError" in failures[0].message


def test_trouble_with_storage_is_not_held_against_the_chunk(
    actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sapiens_batch.errors import StorageError

    def refuse(key: str, data: bytes) -> bool:
        raise StorageError("the bucket is gone")

    monkeypatch.setattr(actor.store, "create", refuse)
    for _ in range(MAX_ATTEMPTS + 1):
        failure = actor(prepared(0)).failure
        assert failure is not None and not failure.suspect
        assert "the bucket is gone" in failure.message
    assert actor.attempts.unfinished() == []


def test_models_that_cannot_be_loaded_fail_every_chunk_and_count_for_none(
    request: pytest.FixtureRequest,
) -> None:
    def refuse(context: JobContext, num_threads: int | None) -> Any:
        raise WeightsError("model.safetensors is torn")

    attempts = AttemptCounter()
    stage = LabelChunk(small_context(MemoryStore(request.node.name)), None, refuse, attempts)
    failure = unpack(stage(pack(prepared(0)))).failure
    assert failure.in_setup and "torn" in failure.message
    assert attempts.unfinished() == []


def test_what_fails_before_the_actor_passes_through(actor: Actor) -> None:
    failed = replace(actor(prepared(0, plain_image(FAILS))))
    assert actor.stage(table := pack(failed)) is table


def test_a_suspect_is_labeled_sample_by_sample(request: pytest.FixtureRequest) -> None:
    context = small_context(MemoryStore(request.node.name))
    stage = LabelChunk(context, None, Synthetic(), AttemptCounter())
    outcome = unpack(stage(pack(suspect(0, plain_image(FAILS)))))
    assert outcome.receipt.reasons == {"label.failed": 2}


def test_a_suspect_that_ends_its_actors_as_well_fails_and_says_why(actor: Actor) -> None:
    work = Work(SHARD.shard_id, 0, 0)
    for _ in range(MAX_ATTEMPTS):  # as actors that died leave it
        actor.attempts.begin_isolated(work, MAX_ATTEMPTS)
    for _ in range(2):  # and in the passes that follow
        failure = actor(suspect(0)).failure
        assert failure is not None and not failure.suspect
        for words in ("IsolationError", "ended 2 workers", "output.chunk_samples"):
            assert words in failure.message
