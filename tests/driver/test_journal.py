"""What a run writes down, and when; a store that refuses ends nothing."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import sapiens_batch.driver.journal as module
from sapiens_batch.driver.journal import Journal, new_run_id, package_versions
from sapiens_batch.errors import StorageError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.journal import Line, decode
from sapiens_batch.protocol.runs import Run, read_runs
from sapiens_batch.stages.flow import Failure, failure_of
from sapiens_batch.storage import MemoryStore

CHUNK = ("a" * 32, 0, 3)


class FailingStore(MemoryStore):
    """Refuses creates while `failing`; with `after`, only once they took effect."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.failing = False
        self.after = False

    def create(self, key: str, data: bytes | memoryview) -> bool:
        if self.after:
            super().create(key, data)
        if self.failing:
            raise StorageError("the store is away")
        return super().create(key, data)


@pytest.fixture
def store(request: pytest.FixtureRequest) -> FailingStore:
    name = f"journal-{request.node.name}"
    for info in MemoryStore(name).list(""):
        MemoryStore(name).delete(info.key)
    return FailingStore(name)


def raised(text: str) -> Failure:
    try:
        raise ValueError(text)
    except ValueError as error:
        return failure_of(error, CHUNK[0], CHUNK[2], "label")


def only_run(store: MemoryStore) -> Run:
    (run,) = read_runs(store, newest=9, segments=99)
    return run


def kinds(store: MemoryStore) -> list[str]:
    return [one["kind"] for one in only_run(store).lines]


def num_segments(store: MemoryStore) -> int:
    return len(list(store.list(keys.RUNS)))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_ids_of_runs_say_when_they_began() -> None:
    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{8}", new_run_id())
    assert new_run_id() != new_run_id()


def test_versions_that_decide_labels_are_named() -> None:
    assert {"python", "torch", "numpy", "pillow"} <= package_versions().keys()


def test_a_run_is_two_objects_when_nothing_happens(store: FailingStore) -> None:
    with Journal(store, new_run_id()) as journal:
        journal.start(partition="1/1")
        assert kinds(store) == ["started"]
        journal.event("sizing", label_actors=2)
        journal.end(0, samples=7)
    assert kinds(store) == ["started", "sizing", "ended"]
    assert num_segments(store) == 2
    started, _, ended = only_run(store).lines
    assert started["partition"] == "1/1"
    assert {"host", "pid", "versions"} <= started.keys()
    assert (ended["exit_code"], ended["samples"]) == (0, 7)


def test_failures_are_stored_soon_with_their_traceback_once(store: FailingStore) -> None:
    with Journal(store, new_run_id(), urgent_every_s=0.05) as journal:
        journal.start()
        with journal._flushing:  # so that both are in one segment
            journal.failure(raised("chunk 1"))
            journal.failure(raised("chunk 2"))
        wait_for(lambda: num_segments(store) == 2)
        first, second = (one for one in only_run(store).lines if one["kind"] == "failure")
    assert first["trace_id"] == second["trace_id"]
    assert "in raised" in first["trace"]
    assert "trace" not in second
    assert (second["stage"], second["chunk"]) == ("label", 3)


def test_segments_say_what_is_done_and_in_flight(store: FailingStore) -> None:
    with Journal(store, new_run_id(), urgent_every_s=0.02, every_s=0.05) as journal:
        journal.start()
        with journal.watching(lambda: {"samples": 5}, lambda: [CHUNK]):
            wait_for(lambda: "in_flight" in kinds(store))
            assert only_run(store).in_flight == (CHUNK,)
        last = only_run(store).last("progress")
        assert last is not None and last["samples"] == 5
        journal.end(5, "SIGTERM")
    run = only_run(store)
    assert run.in_flight == (CHUNK,), "what it was doing when it ended"
    assert run.has_ended


def test_who_cannot_be_looked_at_is_left_out(store: FailingStore) -> None:
    def gone() -> list[tuple[str, int, int]]:
        raise RuntimeError("the cluster is gone")

    with Journal(store, new_run_id()) as journal, journal.watching(dict, gone):
        journal.event("sizing")
    assert kinds(store) == ["sizing", "progress", "ended"]


def test_what_ends_a_run_is_written_down(store: FailingStore) -> None:
    with pytest.raises(StorageError), Journal(store, new_run_id()):
        raise StorageError("no rights")
    ended = only_run(store).lines[-1]
    assert (ended["exit_code"], ended["why"]) == (2, "StorageError: no rights")
    assert "test_what_ends_a_run" in ended["trace"]


def test_lines_wait_for_a_store_that_refuses(
    store: FailingStore, caplog: pytest.LogCaptureFixture
) -> None:
    with Journal(store, new_run_id()) as journal:
        store.failing = True
        journal.start()
        journal.event("sizing")
        assert not journal.flush()
        store.failing = False
        journal.end(0)
    assert kinds(store) == ["started", "sizing", "ended"]
    assert "cannot be written: the store is away" in caplog.text


def test_lines_whose_answer_was_lost_are_not_doubled(store: FailingStore) -> None:
    with Journal(store, new_run_id()) as journal:
        store.failing = store.after = True
        journal.start()
        store.failing = store.after = False
        journal.end(0)
    assert kinds(store) == ["started", "ended"]


def test_a_store_that_stays_away_costs_lines_and_not_the_run(
    store: FailingStore, caplog: pytest.LogCaptureFixture
) -> None:
    with Journal(store, new_run_id()) as journal:
        store.failing = True
        journal.end(0)
    assert "are lost" in caplog.text


def test_memory_is_bounded(store: FailingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINES", 3)
    with Journal(store, new_run_id()) as journal:
        for number in range(10):
            journal.failure(raised(f"{number}"))
        journal.end(0)
    found: list[Line] = list(only_run(store).lines)
    assert [one["kind"] for one in found] == ["failure"] * 3 + ["ended", "dropped"]
    assert found[-1]["lines"] == 7


def test_of_what_is_in_flight_only_the_newest_is_kept(store: FailingStore) -> None:
    with Journal(store, new_run_id()) as journal:
        store.failing = True
        journal.start()
        with journal.watching(dict, lambda: [CHUNK]):
            for _ in range(5):
                journal.flush()
        store.failing = False
    assert kinds(store) == ["started", "progress", "in_flight", "ended"]


def test_a_field_that_is_no_json_is_written_as_text(store: FailingStore) -> None:
    with Journal(store, new_run_id()) as journal:
        journal.event("message", path=Path("/a"))
    assert only_run(store).lines[0]["path"] == "/a"


def test_a_long_traceback_keeps_both_ends(store: FailingStore) -> None:
    trace = "begin\n" + "  middle\n" * 10_000 + "end"
    with Journal(store, new_run_id()) as journal:
        journal.failure(Failure(CHUNK[0], 1, "read", "RecursionError", trace))
    kept = only_run(store).lines[0]["trace"]
    assert kept.startswith("begin") and kept.endswith("end")
    assert len(kept) < module.MAX_TRACE + 10


def test_who_embeds_us_sees_it_in_their_log(
    store: FailingStore, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "sapiens_batch"), Journal(store, new_run_id()) as journal:
        journal.start(partition="1/1")
        journal.failure(raised("too dark"))
        journal.end(5, "SIGTERM")
    found = [(one.levelname, one.getMessage()) for one in caplog.records]
    assert all(
        name == "sapiens_batch.driver.journal" for name in {one.name for one in caplog.records}
    )
    assert found[0][1].startswith("started partition=1/1")
    assert found[1] == (
        "WARNING",
        f"label failed shard={CHUNK[0]} chunk=3 why=ValueError: too dark",
    )
    assert found[2] == ("INFO", "ended exit_code=5 why=SIGTERM")


def test_the_thread_ends_with_the_run(store: FailingStore) -> None:
    with Journal(store, new_run_id()):
        assert any(one.name == "journal" for one in threading.enumerate())
    assert not any(one.name == "journal" for one in threading.enumerate())
    assert decode(store.read(next(store.list(keys.RUNS)).key))
