"""The counter knows what was begun and never came through, and nothing else."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from sapiens_batch.errors import StorageError
from sapiens_batch.protocol.journal import InFlightLog
from sapiens_batch.protocol.runs import attempts_of_dead_runs
from sapiens_batch.stages.attempts import AttemptCounter, Care, Work
from sapiens_batch.storage.memory import MemoryStore
from tests.small_tasks import SHARD

CHUNK = Work(SHARD.shard_id, 0, 3)
OTHER = CHUNK._replace(chunk=4)
SPAN = Work(SHARD.shard_id, 0, None, (1, 4))


@pytest.fixture
def counter() -> AttemptCounter:
    return AttemptCounter()


def test_beginnings_that_never_came_through_are_counted(counter: AttemptCounter) -> None:
    assert [counter.begin(CHUNK) for _ in range(3)] == [0, 1, 2]


def test_what_came_through_is_forgotten(counter: AttemptCounter) -> None:
    counter.begin(CHUNK)
    assert counter.begin(OTHER, ended=[CHUNK]) == 0
    assert counter.unfinished() == [OTHER]
    counter.begin(OTHER)
    counter.end(OTHER)
    assert counter.begin(OTHER) == 0


def test_chunks_generations_and_spans_have_accounts_of_their_own(counter: AttemptCounter) -> None:
    counter.begin(CHUNK)
    others = (OTHER, CHUNK._replace(generation=1), SPAN, SPAN._replace(span=(0, 4)))
    assert [counter.begin(one) for one in others] == [0, 0, 0, 0]


def test_an_attempt_that_does_not_count_is_taken_back_alone(counter: AttemptCounter) -> None:
    counter.begin(CHUNK)
    counter.begin(CHUNK)
    counter.excuse(CHUNK)
    assert counter.begin(CHUNK) == 1
    counter.excuse(OTHER)  # one that is not there
    assert counter.begin(OTHER) == 0


def test_isolated_work_is_counted_apart_and_up_to_its_limit(counter: AttemptCounter) -> None:
    assert [counter.begin_isolated(CHUNK, 2) for _ in range(4)] == [0, 1, 2, 2]
    assert counter.begin(CHUNK) == 0
    counter.end_isolated(CHUNK)
    assert counter.begin_isolated(CHUNK, 2) == 0


def test_what_dead_runs_had_in_flight_counts_until_it_came_through() -> None:
    counter = AttemptCounter({CHUNK.place: 2, SPAN.place: 1})
    assert counter.begin(CHUNK) == 2
    assert counter.begin(OTHER) == 0
    assert counter.begin(SPAN) == counter.begin(SPAN._replace(span=(0, 1))) == 1
    assert counter.begin(OTHER, ended=[CHUNK]) == 1
    assert counter.begin(CHUNK) == 0


def test_a_careful_run_says_what_it_begins_before_it_does(request: pytest.FixtureRequest) -> None:
    store = MemoryStore(request.node.name)
    log = InFlightLog(store, "20260101T000000Z-00000000")
    counter = AttemptCounter(care=Care(log, time.time() + 60))
    counter.begin(CHUNK)
    counter.begin(SPAN)
    assert attempts_of_dead_runs(store) == {CHUNK.place: 1, SPAN.place: 1}
    counter.begin(OTHER, ended=[CHUNK])
    assert attempts_of_dead_runs(store) == {OTHER.place: 1, SPAN.place: 1}


def test_a_run_is_careful_for_its_first_minutes_only(request: pytest.FixtureRequest) -> None:
    store = MemoryStore(request.node.name)
    log = InFlightLog(store, "20260101T000000Z-00000000")
    AttemptCounter(care=Care(log, time.time() - 1)).begin(CHUNK)
    assert list(store.list("")) == []


class Refusing(MemoryStore):
    """Memory that takes nothing."""

    def create(self, key: str, data: bytes | memoryview) -> bool:
        raise StorageError("full")


def test_a_store_that_refuses_notes_keeps_nothing_from_being_begun() -> None:
    log = InFlightLog(Refusing("refusing"), "20260101T000000Z-00000000")
    assert AttemptCounter(care=Care(log, time.time() + 60)).begin(CHUNK) == 0


def test_the_last_note_is_the_newest_however_many_begin_at_once(
    request: pytest.FixtureRequest,
) -> None:
    store = MemoryStore(request.node.name)
    counter = AttemptCounter(
        care=Care(InFlightLog(store, "20260101T000000Z-00000000"), time.time() + 60)
    )
    works = [CHUNK._replace(chunk=number) for number in range(32)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(counter.begin, works))
    assert attempts_of_dead_runs(store).keys() == {work.place for work in works}
