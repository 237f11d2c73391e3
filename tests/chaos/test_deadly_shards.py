"""A shard that ends every process that reads it costs itself and no other shard."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sapiens_batch.job.manifest import Manifest
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
    assert (summary.exit_code, summary.committed_shards, summary.num_shards) == (5, 2, 3)
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
