"""A shard read in a process that may die: the same chunks, and an account of the rest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.sources import make_source
from sapiens_batch.spec.job import SourceSpec
from sapiens_batch.stages.flow import Outcome, ReadChunk
from sapiens_batch.stages.read import ShardReader
from sapiens_batch.stages.read_apart import read_apart
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


def the_todo(reader: ShardReader, done: frozenset[int] = frozenset()) -> ShardTodo:
    (shard,) = make_source(reader.spec).plan()
    return ShardTodo(shard, done)


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
