"""A chunk that ends its actor in isolation as well costs itself, once, and no other chunk."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sapiens_batch.protocol.journal import InFlightLog
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.records import TaskLabels, TaskName, ViewBatch, ViewSpec
from sapiens_batch.stages.context import JobContext
from tests.chaos.jobs import check_whole, run_here
from tests.chaos.matrix import Arena
from tests.synthetic import Synthetic, SyntheticLabeler

MAX_ATTEMPTS = 2
DARKEST = 1
"""The shade of the first image of the first shard."""


@dataclass(frozen=True)
class Overwhelming:
    """Loads a labeler whose labels of one image are too much for the actor.

    Attributes:
        log: A file that gets one byte for each actor that died.
        mended: A file; while it exists nobody dies.
    """

    log: Path
    mended: Path

    def __call__(self, context: JobContext, num_threads: int | None) -> OverwhelmingLabeler:
        return OverwhelmingLabeler(self, context)

    def num_deaths(self) -> int:
        """Actors that died so far."""
        return self.log.stat().st_size if self.log.exists() else 0


class OverwhelmingLabeler(SyntheticLabeler):
    """Labels as `SyntheticLabeler` does; those of the darkest image end who gets them."""

    def __init__(self, settings: Overwhelming, context: JobContext) -> None:
        super().__init__(Synthetic(), context)
        self._overwhelming = settings

    def label(self, views: Mapping[ViewSpec, ViewBatch]) -> dict[TaskName, TaskLabels]:
        labels = super().label(views)
        darkest = min(int(one.max()) for batch in views.values() for one in batch.canvases)
        if darkest > DARKEST or self._overwhelming.mended.exists():
            return labels
        columns = {**labels["seg"].columns, "more": _TooMuch(self._overwhelming.log)}
        return {**labels, "seg": replace(labels["seg"], columns=columns)}


@dataclass(frozen=True)
class _TooMuch:
    log: Path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return _die, (self.log,)


def _die(log: Path) -> None:
    with log.open("ab") as file:
        file.write(b"x")
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_it_is_given_up_in_this_run_and_labeled_in_one_that_can(
    arena: Arena, tmp_path: Path
) -> None:
    labeler = Overwhelming(tmp_path / "deaths", tmp_path / "mended")
    job = arena.job("overwhelmed")
    errors = job.spec.errors.model_copy(update={"max_attempts": MAX_ATTEMPTS})
    job = replace(job, spec=job.spec.model_copy(update={"errors": errors}))
    todo = Manifest.open(job.store).todo()
    (shard,) = (one.shard for one in todo if one.shard.key == "000.tar")
    for number in range(MAX_ATTEMPTS):
        log = InFlightLog(job.store, f"20260101T000000Z-{number:08x}")
        log.write([(shard.shard_id, 0, 0)], 0.0)

    summary = run_here(job, labeler=labeler)
    assert (summary.exit_code, summary.status.open_shards) == (5, 1)
    (failure,) = summary.failures
    assert failure.chunk == 0
    assert f"IsolationError: chunk 0 of shard {shard.shard_id}" in failure.message
    assert labeler.num_deaths() == MAX_ATTEMPTS, "all passes together"

    labeler.mended.touch()
    assert run_here(job, labeler=labeler).exit_code == 0
    check_whole(job, arena.expected)
