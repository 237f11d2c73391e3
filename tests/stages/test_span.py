"""Reading and preparing a span: the same chunks whatever happens, and an account of the rest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.records import Chunk
from sapiens_batch.sources import make_source
from sapiens_batch.spec.job import SourceSpec
from sapiens_batch.stages.attempts import AttemptCounter, Work, reading_work
from sapiens_batch.stages.flow import Outcome, PreparedChunk, SuspectChunk
from sapiens_batch.stages.prepare import ChunkPreparer
from sapiens_batch.stages.preparer import make_preparer
from sapiens_batch.stages.read import ShardReader
from sapiens_batch.stages.span import Record, SpanReader
from sapiens_batch.storage.memory import MemoryStore
from tests.deadly import Deadly, write_deadly_shard
from tests.small_jobs import small_context

MAX_ATTEMPTS = 2


@pytest.fixture
def deadly(tmp_path: Path) -> Deadly:
    deadly = Deadly(tmp_path / "deaths", tmp_path / "mended")
    deadly.mended.touch()
    return deadly


@pytest.fixture
def attempts() -> AttemptCounter:
    return AttemptCounter()


@pytest.fixture
def reader(tmp_path: Path, deadly: Deadly, attempts: AttemptCounter) -> SpanReader:
    """Reads a shard of four chunks of two samples."""
    write_deadly_shard(tmp_path / "000.tar")
    uri = f"deadly://{tmp_path}/*.tar"
    spec = SourceSpec(format="webdataset", uri=uri, storage_options={"when": deadly})
    preparer = make_preparer(small_context(MemoryStore("none")))
    return SpanReader(ShardReader(spec, 2), preparer, attempts, MAX_ATTEMPTS)


def the_todo(reader: SpanReader, done: frozenset[int] = frozenset()) -> ShardTodo:
    (shard,) = make_source(reader.reader.spec).plan()
    return ShardTodo(shard, done)


def numbers(records: Iterator[Record]) -> list[int]:
    """Numbers of the chunks that were prepared."""
    return [one.header.index for one in records if isinstance(one, PreparedChunk)]


def failures(records: list[Record]) -> list[str]:
    return [one.failure.message for one in records if isinstance(one, Outcome) and one.failure]


def test_each_chunk_that_is_not_done_is_prepared(reader: SpanReader) -> None:
    assert numbers(reader.read(the_todo(reader, frozenset({1})))) == [0, 2, 3]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_spans_of_a_shard_give_each_chunk_once(reader: SpanReader, count: int) -> None:
    todo = the_todo(reader)
    spans = [replace(todo, span=(number, count)) for number in range(count)]
    found = [one for span in spans for one in reader.read(span)]
    assert sorted(numbers(iter(found))) == [0, 1, 2, 3]
    assert sum(isinstance(one, PreparedChunk) and one.header.last for one in found) == 1


def test_a_suspect_is_handed_on_undecoded_in_its_place(reader: SpanReader) -> None:
    todo = replace(the_todo(reader), suspects=frozenset({2}))
    found = list(reader.read(todo))
    assert [type(one) for one in found] == [PreparedChunk] * 2 + [SuspectChunk] + [PreparedChunk]
    assert isinstance(found[2], SuspectChunk)
    assert [sample.index for sample in found[2].chunk.samples] == [4, 5]


@dataclass(frozen=True)
class Fails:
    """A preparer that fails on one chunk."""

    inner: ChunkPreparer
    chunk: int

    def prepare(self, chunk: Chunk) -> PreparedChunk:
        if chunk.index == self.chunk:
            raise ValueError("an odd chunk")
        return self.inner.prepare(chunk)


def test_a_chunk_that_cannot_be_prepared_fails_alone_and_is_suspect_in_the_end(
    reader: SpanReader,
) -> None:
    failing = replace(reader, preparer=Fails(reader.preparer, 1))  # type: ignore[arg-type]
    for is_suspect in (False, True):
        found = list(failing.read(the_todo(reader)))
        assert numbers(iter(found)) == [0, 2, 3]
        assert isinstance(found[1], Outcome) and found[1].failure is not None
        assert (found[1].failure.chunk, found[1].failure.suspect) == (1, is_suspect)


def test_only_the_death_of_a_reader_counts(
    reader: SpanReader, attempts: AttemptCounter, tmp_path: Path
) -> None:
    todo = the_todo(reader)
    records = reader.read(todo)
    next(records)
    assert attempts.unfinished() == [reading_work(todo)]
    list(records)
    assert attempts.unfinished() == []
    (tmp_path / "000.tar").unlink()
    assert "MissingInputError" in failures(list(reader.read(todo)))[0]
    given_up = reader.read(todo)
    next(given_up)
    given_up.close()
    assert attempts.unfinished() == []


def test_a_span_that_used_up_its_attempts_does_not_end_its_reader(
    reader: SpanReader, attempts: AttemptCounter, deadly: Deadly
) -> None:
    deadly.mended.unlink()
    todo = the_todo(reader)
    for _ in range(MAX_ATTEMPTS):
        attempts.begin(reading_work(todo))
    found = list(reader.read(todo))
    assert numbers(iter(found)) == [0, 1]
    assert "ReaderCrashError: shard 000.tar" in failures(found)[0]
    assert deadly.num_deaths() == 1
    assert attempts.begin(reading_work(todo)) == MAX_ATTEMPTS, "in the next pass neither"


@dataclass(frozen=True)
class Kills:
    """A preparer that ends its process on one chunk."""

    inner: ChunkPreparer
    chunk: int

    def prepare(self, chunk: Chunk) -> PreparedChunk:
        if chunk.index == self.chunk:
            os._exit(1)
        return self.inner.prepare(chunk)


def test_a_chunk_that_ends_who_prepares_it_is_handed_on_and_the_others_are_prepared(
    reader: SpanReader, attempts: AttemptCounter
) -> None:
    todo = the_todo(reader)
    killing = replace(reader, preparer=Kills(reader.preparer, 1))  # type: ignore[arg-type]
    for _ in range(MAX_ATTEMPTS):
        attempts.begin(reading_work(todo))
    found = list(killing.read(todo))
    assert numbers(iter(found)) == [0, 2, 3]
    assert isinstance(found[1], SuspectChunk)
    assert found[1].header.index == 1


def test_a_span_that_ends_workers_even_so_is_given_up_for_this_run(
    reader: SpanReader, attempts: AttemptCounter
) -> None:
    todo = the_todo(reader)
    work: Work = reading_work(todo)
    for _ in range(MAX_ATTEMPTS):
        attempts.begin(work)
        attempts.begin_isolated(work, MAX_ATTEMPTS)
    (message,) = failures(list(reader.read(todo)))
    assert "IsolationError: shard 000.tar" in message
    next_run = replace(reader, attempts=AttemptCounter())
    assert numbers(next_run.read(todo)) == [0, 1, 2, 3]
