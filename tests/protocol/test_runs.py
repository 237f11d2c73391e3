"""Reading journals back: how runs ended, what they had in flight, what failed."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from sapiens_batch.protocol import keys
from sapiens_batch.protocol.journal import (
    InFlightLog,
    Segments,
    decode,
    encode,
    in_flight_line,
    line,
    trace_id,
)
from sapiens_batch.protocol.runs import (
    attempts_of_dead_runs,
    group_failures,
    last_run_died,
    read_runs,
)
from sapiens_batch.storage import MemoryStore

RUNS = [f"2026010{day}T000000Z-0000000{day}" for day in range(1, 6)]
CHUNK, OTHER = ("a" * 32, 0, 3), ("b" * 32, 1, None)


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[MemoryStore]:
    made = MemoryStore(request.node.name)
    yield made
    for info in made.list(""):
        made.delete(info.key)


def write(store: MemoryStore, run: str, *lines: dict[str, Any], segments: Any = None) -> None:
    (segments or Segments(store, run)).write(encode(lines))


def failure(now_s: float, message: str, trace: str = "") -> dict[str, Any]:
    fields = {"stage": "label", "shard": "a" * 32, "chunk": 1, "message": message}
    return line(now_s, "failure", **fields, trace_id=trace_id(trace or message), trace=trace)


def test_a_key_says_run_writer_and_number() -> None:
    assert keys.parse_journal(keys.journal(RUNS[0], 7)) == (RUNS[0], "", 7)
    assert keys.parse_journal(keys.journal(RUNS[0], 12345, "inflight")) == (
        RUNS[0],
        "inflight",
        12345,
    )
    assert keys.parse_journal("runs/other/0000.jsonl") is None


def test_what_is_damaged_is_left_out() -> None:
    whole = encode([line(0, "started"), line(1, "ended", exit_code=0)])
    cut = whole[:-20]
    assert [one["kind"] for one in decode(cut)] == ["started"]
    assert decode(b'\xff\xfe\n[1]\n{"t": 3, "kind": "x"}\n' + b"[" * 5000) == []


def test_a_run_without_an_end_died(store: MemoryStore) -> None:
    write(store, RUNS[0], line(0, "started"), line(5, "ended", exit_code=5))
    write(store, RUNS[1], line(10, "started"))
    assert [one.has_ended for one in read_runs(store, newest=9)] == [False, True]
    assert last_run_died(store)
    assert not last_run_died(store, besides=RUNS[1])
    assert not last_run_died(MemoryStore("none"))


def test_chunks_of_dead_runs_are_counted_once_a_run(store: MemoryStore) -> None:
    write(store, RUNS[0], in_flight_line(1, [CHUNK, OTHER]))
    write(store, RUNS[1], in_flight_line(2, [CHUNK]))
    write(store, RUNS[2], in_flight_line(3, [CHUNK]), line(4, "ended", exit_code=5))
    write(store, RUNS[3], in_flight_line(5, [CHUNK]))
    assert attempts_of_dead_runs(store, besides=RUNS[3]) == Counter({CHUNK: 2, OTHER: 1})


def test_the_newest_word_about_chunks_in_flight_counts(store: MemoryStore) -> None:
    log = InFlightLog(store, RUNS[0])
    segments = Segments(store, RUNS[0])
    write(store, RUNS[0], line(0, "started"), segments=segments)
    log.write([OTHER], 1)
    log.write([CHUNK, OTHER], 2)
    assert attempts_of_dead_runs(store) == Counter([CHUNK, OTHER])
    write(store, RUNS[0], in_flight_line(60, [OTHER]), segments=segments)
    assert attempts_of_dead_runs(store) == Counter([OTHER])
    write(store, RUNS[0], line(61, "ended", exit_code=0), segments=segments)
    assert attempts_of_dead_runs(store) == Counter()


def test_copies_of_a_log_never_collide(store: MemoryStore) -> None:
    log = InFlightLog(store, RUNS[0])
    for now_s, one in enumerate([log, pickle.loads(pickle.dumps(log)), log]):
        one.write([CHUNK], now_s)
    assert [info.key for info in store.list(keys.RUNS)] == [
        keys.journal(RUNS[0], number, "inflight") for number in range(3)
    ]


def test_a_segment_that_arrived_unseen_is_not_stored_twice(store: MemoryStore) -> None:
    data = encode([line(0, "started")])
    store.create(keys.journal(RUNS[0], 0), data)
    segments = Segments(store, RUNS[0])
    segments.write(data)
    segments.write(encode([line(1, "ended")]))
    assert [info.key[-10:] for info in store.list(keys.RUNS)] == ["0000.jsonl", "0001.jsonl"]


def test_reading_is_bounded_by_runs_and_segments(store: MemoryStore) -> None:
    for run in RUNS:
        segments = Segments(store, run)
        for number in range(4):
            write(store, run, line(number, "progress", number=number), segments=segments)
    found = list(read_runs(store, newest=2, segments=2))
    assert [one.run for one in found] == [RUNS[4], RUNS[3]]
    assert [one["number"] for one in found[0].lines] == [0, 2, 3]


def test_failures_of_the_same_kind_are_one_group(store: MemoryStore) -> None:
    trace = 'Traceback:\n  File "a.py", line 1\nValueError: chunk %d'
    write(
        store,
        RUNS[0],
        failure(1, "ValueError: chunk 1", trace % 1),
        failure(2, "ValueError: chunk 2", trace % 2),
        failure(3, "OSError: gone"),
    )
    write(store, RUNS[1], failure(9, "ValueError: chunk 3", trace % 3))
    most, other = group_failures(read_runs(store, newest=5))
    assert (most.num_failures, most.message) == (3, "ValueError: chunk 3")
    assert most.trace == trace % 3
    assert (most.first[14:19], most.last[14:19]) == ("00:01", "00:09")
    assert (other.num_failures, other.message, other.trace) == (1, "OSError: gone", "")
