"""A shard read in a process that may die: the same chunks, and an account of the rest."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sapiens_batch.child.exchange import send
from sapiens_batch.child.processes import end_process, module_command, start_process
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.sources import make_source
from sapiens_batch.spec.job import SourceSpec
from sapiens_batch.stages.attempts import AttemptLedger
from sapiens_batch.stages.flow import Outcome, ReadChunk, unpack
from sapiens_batch.stages.read import ShardReader
from sapiens_batch.stages.read_apart import read_apart
from sapiens_batch.stages.source import read_shard
from sapiens_batch.storage.memory import MemoryStore
from tests.deadly import Deadly, write_deadly_shard


@pytest.fixture
def deadly(tmp_path: Path) -> Deadly:
    return Deadly(tmp_path / "deaths", tmp_path / "mended")


@pytest.fixture
def reader(tmp_path: Path, deadly: Deadly) -> ShardReader:
    write_deadly_shard(tmp_path / "000.tar")
    uri = f"deadly://{tmp_path}/*.tar"
    spec = SourceSpec(format="webdataset", uri=uri, storage_options={"when": deadly})
    return ShardReader(spec, chunk_samples=2)


@pytest.fixture
def ledger(request: pytest.FixtureRequest) -> AttemptLedger:
    return AttemptLedger(MemoryStore(request.node.name), max_attempts=2)


def the_todo(reader: ShardReader, done: frozenset[int] = frozenset()) -> ShardTodo:
    (shard,) = make_source(reader.spec).plan()
    return ShardTodo(shard, done)


def marks(ledger: AttemptLedger) -> int:
    return len(list(ledger.store.list(keys.ATTEMPTS)))


def die_reading(ledger: AttemptLedger, todo: ShardTodo, run: str = "") -> None:
    """Leave what a killed worker leaves, in isolation where a run is given."""
    write_id = (run + os.urandom(16).hex())[:32]
    ledger.store.create(keys.attempt(todo.shard.shard_id, None, write_id), b"")


def chunks(records: Iterator[ReadChunk | Outcome]) -> tuple[list[int], Outcome | None]:
    """Numbers of the chunks, and the outcome that ends them."""
    found = list(records)
    ends = [one for one in found if isinstance(one, Outcome)]
    assert ends == found[len(found) - len(ends) :]
    return (
        [one.header.index for one in found if isinstance(one, ReadChunk)],
        ends[0] if ends else None,
    )


def test_a_sound_shard_gives_the_same_chunks(reader: ShardReader, deadly: Deadly) -> None:
    deadly.mended.touch()
    todo = the_todo(reader, done=frozenset({1}))
    assert list(read_apart(reader, todo, 0)) == list(reader.read(todo))


def test_chunks_before_the_crash_come_and_the_rest_is_accounted_for(reader: ShardReader) -> None:
    numbers, outcome = chunks(read_apart(reader, the_todo(reader), 2))
    assert numbers == [0, 1]
    assert outcome is not None and outcome.failure is not None
    assert outcome.failure.stage == "read"
    for words in ("shard 000.tar", "2 workers", "after chunk 1", "SIGKILL", "mend or replace"):
        assert words in outcome.failure.message


def test_a_read_that_hangs_is_ended_and_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "000.tar")
    spec = SourceSpec(format="webdataset", uri=f"{tmp_path}/000.tar")
    reader = ShardReader(spec, 2, stall_timeout_s=3.0)
    numbers, outcome = chunks(read_apart(reader, the_todo(reader), 2))
    assert numbers == []
    assert outcome is not None and outcome.failure is not None
    for words in ("ReaderStallError: shard 000.tar", "before its first chunk", "3 s"):
        assert words in outcome.failure.message


def test_an_error_is_told_as_from_the_worker(reader: ShardReader, tmp_path: Path) -> None:
    todo = the_todo(reader)
    (tmp_path / "000.tar").unlink()
    numbers, outcome = chunks(read_apart(reader, todo, 2))
    assert numbers == []
    assert outcome is not None and outcome.failure is not None
    assert "MissingInputError" in outcome.failure.message


def test_a_shard_that_used_up_its_attempts_does_not_end_its_reader(
    reader: ShardReader, ledger: AttemptLedger, deadly: Deadly
) -> None:
    todo = the_todo(reader)
    for _ in range(2):
        die_reading(ledger, todo)
    numbers, outcome = chunks(map(unpack, read_shard(reader, ledger, todo)))
    assert (numbers, outcome is not None) == ([0, 1], True)
    assert deadly.num_deaths() == 1
    assert marks(ledger) == 2, "an attempt that was accounted for is none that died"


def test_a_shard_that_ends_workers_even_so_is_given_up_for_this_run(
    reader: ShardReader, ledger: AttemptLedger, deadly: Deadly
) -> None:
    deadly.mended.touch()
    todo = the_todo(reader)
    for _ in range(2):
        die_reading(ledger, todo)
        die_reading(ledger, todo, run=ledger.run)
    numbers, outcome = chunks(map(unpack, read_shard(reader, ledger, todo)))
    assert numbers == []
    assert outcome is not None and outcome.failure is not None
    assert "IsolationError: shard 000.tar" in outcome.failure.message
    next_run = AttemptLedger(ledger.store, ledger.max_attempts)
    assert chunks(map(unpack, read_shard(reader, next_run, todo))) == ([0, 1, 2, 3], None)


def test_only_the_death_of_a_reader_leaves_a_mark(
    reader: ShardReader, ledger: AttemptLedger, deadly: Deadly, tmp_path: Path
) -> None:
    deadly.mended.touch()
    todo = the_todo(reader)
    stages = read_shard(reader, ledger, todo)
    next(stages)
    assert marks(ledger) == 1
    list(stages)
    assert marks(ledger) == 0
    (tmp_path / "000.tar").unlink()
    list(read_shard(reader, ledger, todo))
    assert marks(ledger) == 0
    given_up = read_shard(reader, ledger, todo)
    next(given_up)
    given_up.close()
    assert marks(ledger) == 0


def test_the_process_ends_with_its_worker_whatever_it_hangs_on(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "000.tar")
    reader = ShardReader(SourceSpec(format="webdataset", uri=f"{tmp_path}/000.tar"), 2)
    todo = the_todo(reader)
    process = start_process(module_command("sapiens_batch.stages.read_apart"))
    assert process.stdin is not None
    try:
        send(process.stdin.fileno(), (reader, todo))
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3.0)
        process.stdin.close()
        assert process.wait(20.0) == 0
    finally:
        end_process(process)
