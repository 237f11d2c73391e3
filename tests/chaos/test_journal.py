"""What runs leave in their journals, with real workers and drivers that die."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sapiens_batch.cli import app
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.runs import attempts_of_dead_runs, last_run_died, read_runs
from sapiens_batch.stages.context import JobContext
from sapiens_batch.storage import Store
from tests.chaos.jobs import Place, dataset, make_job, run_apart, run_here
from tests.chaos.matrix import Arena
from tests.synthetic import ENDS_DRIVER, FAILS, Synthetic, plain_image, write_shard

MAX_ATTEMPTS = 2


def job_with(tmp_path: Path, colour: tuple[int, int, int]) -> JobContext:
    """Two shards of six samples, two a chunk; the fourth of the second shard has a colour."""
    images = {f"{i}": plain_image((i, i, i)) for i in range(6)}
    (tmp_path / "in").mkdir()
    write_shard(tmp_path / "in" / "000.tar", images)
    write_shard(tmp_path / "in" / "001.tar", {**images, "3": plain_image(colour)})
    place = Place(str(tmp_path / "in"), str(tmp_path / "out"))
    return make_job(place, errors={"max_attempts": MAX_ATTEMPTS})


def endings(store: Store) -> list[int | None]:
    """Exit codes of all runs, oldest first; None for those that died."""
    runs = reversed(list(read_runs(store, newest=99)))
    return [(run.last("ended") or {}).get("exit_code") for run in runs]


def test_a_failure_leaves_the_traceback_of_the_worker(arena: Arena, tmp_path: Path) -> None:
    job = job_with(tmp_path, FAILS)
    assert run_here(job, labeler=Synthetic()).exit_code == 0
    (run,) = read_runs(job.store, newest=9, segments=99)
    kinds = [one["kind"] for one in run.lines]
    assert (kinds[0], kinds[-1]) == ("started", "ended")
    assert {"sizing", "progress", "failure"} <= set(kinds)
    failure = next(one for one in run.lines if one["kind"] == "failure")
    assert "in _make_trouble" in failure["trace"]
    assert (failure["stage"], failure["chunk"]) == ("label", 1)
    shown = CliRunner().invoke(app, ["errors", job.store.uri, "--traces"]).output
    assert "ValueError: this colour cannot be labeled" in shown
    assert "in _make_trouble" in shown
    assert "in 001.tar, chunk 1" in shown


def test_a_driver_that_is_killed_leaves_what_it_had_in_flight(arena: Arena) -> None:
    job = arena.job("killed-in-flight")
    for _ in range(2):
        arena.cluster.arm("label", "kill-driver")
        assert run_apart(job, arena.cluster) == -signal.SIGKILL
    # the first died before it wrote what it had begun; the second was careful
    attempts = attempts_of_dead_runs(job.store)
    assert attempts and set(attempts.values()) == {1}
    planned = {shard.shard_id for shard in Manifest.open(job.store).shards()}
    assert {shard_id for shard_id, _, _ in attempts} <= planned
    shown = CliRunner().invoke(app, ["status", job.store.uri]).output
    assert "died, no word since" in shown
    assert "in flight: 00" in shown
    arena.cluster.disarm()
    assert run_here(job).exit_code == 0
    assert endings(job.store) == [None, None, 0]
    assert not last_run_died(job.store)


@pytest.mark.slow
def test_a_chunk_that_ends_its_driver_every_time_is_isolated_in_the_end(
    arena: Arena, tmp_path: Path
) -> None:
    job = job_with(tmp_path, ENDS_DRIVER)
    codes = []
    while not codes or codes[-1] == -signal.SIGKILL:
        assert len(codes) < MAX_ATTEMPTS + 2, "it was met again and again"
        codes.append(run_apart(job, arena.cluster))
    assert codes[-1] == 0
    assert endings(job.store) == [None] * (len(codes) - 1) + [0]
    tables = [shard["tables"]["images"] for shard in dataset(job).values()]
    assert [status for table in tables for status in table["status"].to_pylist()] == ["ok"] * 12
