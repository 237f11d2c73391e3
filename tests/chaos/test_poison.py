"""Samples that end, stall or fail their worker cost themselves and no other sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapiens_batch.driver.retry import order_retry
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.journal import InFlightLog
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.sinks import parquet
from tests.chaos.jobs import Place, check_whole, make_job, run_here
from tests.chaos.matrix import Arena
from tests.synthetic import (
    FAILS,
    KILLS,
    LOSES_DEVICE,
    Synthetic,
    plain_image,
    write_corpus,
    write_shard,
)

POISON = {"kills": KILLS, "fails": FAILS, "loses-device": LOSES_DEVICE}


def statuses(place: Place) -> dict[str, tuple[str, str | None]]:
    """(status, reason) of every sample by key."""
    job = make_job(place)
    found = {}
    for commit in Manifest.open(job.store).commits():
        rows = parquet.decode(job.store.read(commit.tables["images"].key)).to_pylist()
        found |= {row["key"]: (row["status"], row["reason"]) for row in rows}
    return found


@pytest.fixture
def poisoned(arena: Arena, tmp_path: Path) -> Place:
    """One shard of seven samples, three of them poison."""
    gray = plain_image((7, 7, 7))
    images = {"a": gray, "b": gray}
    for key, colour in POISON.items():
        images[key] = plain_image(colour)
        images[f"{key}-neighbour"] = gray
    (tmp_path / "in").mkdir()
    write_shard(tmp_path / "in" / "000.tar", images)
    return Place(str(tmp_path / "in"), str(tmp_path / "out"))


def test_poison_is_quarantined_alone_and_labeled_when_it_is_retried(
    poisoned: Place, tmp_path: Path
) -> None:
    mended = tmp_path / "mended"
    labeler = Synthetic(mended=str(mended))
    job = make_job(poisoned, errors={"max_attempts": 2})
    summary = run_here(job, labeler=labeler)
    assert summary.exit_code == 0
    assert summary.status.reasons == {"crash": 2, "label.failed": 1}
    found = statuses(poisoned)
    assert {key for key, (status, _) in found.items() if status == "quarantined"} == set(POISON)
    assert found["kills"][1] == "crash"
    assert found["fails"][1] == "label.failed"

    manifest = Manifest.open(job.store)
    (first,) = manifest.commits()
    stored = job.store.read(keys.commit(first.shard_id))
    mended.touch()
    assert order_retry(manifest, reasons=["crash"], sample_keys=["kills", "a"]) == 1
    again = run_here(job, labeler=labeler)
    assert (again.exit_code, again.new_samples) == (0, 1)
    assert again.status.reasons == {"crash": 1, "label.failed": 1}
    assert statuses(poisoned)["kills"] == ("ok", None)
    assert job.store.read(keys.commit(first.shard_id)) == stored, "the first commit was changed"
    assert run_here(job, labeler=labeler).new_samples == 0


def test_a_chunk_whose_driver_was_killed_again_and_again_is_just_labeled(arena: Arena) -> None:
    job = arena.job("innocent")
    shard = Manifest.open(job.store).todo()[0].shard
    for number in range(job.spec.errors.max_attempts):
        # what a driver that was killed leaves
        log = InFlightLog(job.store, f"20260101T000000Z-{number:08x}")
        log.write([(shard.shard_id, 0, 1), (shard.shard_id, 0, None)], 0.0)
    assert run_here(job).exit_code == 0
    check_whole(job, arena.expected)


@pytest.mark.slow
def test_actors_that_are_replaced_after_every_other_chunk_lose_nothing(arena: Arena) -> None:
    place = Place(arena.place.corpus, f"{arena.place.output}/recycled")
    job = make_job(place, runtime={"actor_max_chunks": 2})
    assert run_here(job).exit_code == 0
    check_whole(job, arena.expected)


def test_a_job_over_its_budget_stops_early_and_goes_on_with_a_larger_one(
    arena: Arena, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "in", num_shards=3, shard_samples=4)
    write_shard(tmp_path / "in" / "000.tar", {f"bad-{i}": b"no image" for i in range(4)})
    place = Place(str(tmp_path / "in"), str(tmp_path / "out"))
    stopped = run_here(make_job(place, errors={"max_quarantined": 1}), labeler=Synthetic(0.3))
    assert stopped.exit_code == 4
    assert stopped.over_budget and not stopped.status.complete
    wider = run_here(make_job(place, errors={"max_quarantined": 4}))
    assert (wider.exit_code, wider.status.counts.ok, wider.status.counts.quarantined) == (0, 8, 4)
    narrow = run_here(make_job(place, errors={"max_quarantined_fraction": 0.1}))
    assert (narrow.exit_code, narrow.status.complete) == (4, True)
