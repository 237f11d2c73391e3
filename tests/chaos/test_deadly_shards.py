"""A shard that ends or stalls every process that reads it costs itself and no other shard."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from sapiens_batch.failpoints import FAULTS_VARIABLE
from sapiens_batch.protocol.journal import InFlightLog
from sapiens_batch.protocol.manifest import Manifest
from tests.chaos.jobs import Place, check_whole, dataset, make_job, run_here
from tests.chaos.matrix import Arena
from tests.deadly import Deadly, write_deadly_shard
from tests.synthetic import write_corpus

MAX_ATTEMPTS = 2


@pytest.mark.slow
def test_the_other_shards_are_whole_and_the_shard_is_named(arena: Arena, tmp_path: Path) -> None:
    deadly = Deadly(tmp_path / "deaths", tmp_path / "mended")
    write_corpus(tmp_path / "in", num_shards=3, shard_samples=3)
    write_deadly_shard(tmp_path / "in" / "001.tar")
    place = Place(f"deadly://{tmp_path / 'in'}", str(tmp_path / "out"), {"when": deadly})
    job = make_job(place, errors={"max_attempts": MAX_ATTEMPTS})
    summary = run_here(job)
    assert summary.exit_code == 5
    assert (summary.status.committed_shards, summary.status.num_shards) == (2, 3)
    assert dataset(job).keys() == {"000.tar", "002.tar"}
    (failure,) = summary.failures
    assert failure.stage == "read"
    assert "ReaderCrashError: shard 001.tar" in failure.message
    # so many workers, then one process of its own a pass
    assert deadly.num_deaths() == MAX_ATTEMPTS + (MAX_ATTEMPTS + 1)
    todo = next(one for one in Manifest.open(job.store).todo() if one.shard.key == "001.tar")
    assert todo.done_chunks == {0, 1}, "chunks before the crash were not labeled"

    deadly.mended.touch()
    assert run_here(job).exit_code == 0
    undisturbed = make_job(replace(place, output=f"{place.output}-undisturbed"))
    assert run_here(undisturbed).exit_code == 0
    check_whole(job, dataset(undisturbed))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_a_shard_whose_reading_hangs_is_named_and_its_process_ends(
    arena: Arena, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "in", num_shards=2, shard_samples=3)
    os.mkfifo(tmp_path / "in" / "002.tar")  # whoever opens it waits for ever
    place = Place(str(tmp_path / "in"), str(tmp_path / "out"))
    job = make_job(place, errors={"max_attempts": 1}, runtime={"no_progress_timeout_s": 20})
    shard = next(one for one in Manifest.open(job.store).todo() if one.shard.key == "002.tar")
    # as a run leaves it that died while it was read, so that it is read apart at once
    log = InFlightLog(job.store, "20260101T000000Z-00000000")
    log.write([(shard.shard.shard_id, 0, None)], 0.0)
    summary = run_here(job)
    assert summary.exit_code == 5
    assert (summary.status.committed_shards, summary.status.num_shards) == (2, 3)
    (failure,) = summary.failures
    assert "ReaderStallError: shard 002.tar" in failure.message
    assert "before its first chunk took more than 15 s" in failure.message
    assert readers_of(str(arena.cluster.faults)) == []


def readers_of(faults: str) -> list[str]:
    """Ids of the reader processes whose environment names a folder of faults."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_text()
            environment = (folder / "environ").read_text()
        except OSError:
            continue
        if "stages.read_apart" in command and f"{FAULTS_VARIABLE}={faults}" in environment:
            found.append(folder.name)
    return found
