"""A chunk that takes its driver down with it costs so many runs, and then no sample."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.chaos.jobs import Place, make_job, run_apart, run_here
from tests.chaos.matrix import Arena
from tests.synthetic import OVERWHELMS, plain_image, write_corpus, write_shard

MAX_ATTEMPTS = 2


@pytest.mark.slow
def test_the_next_runs_find_it_and_label_its_samples_one_by_one(
    arena: Arena, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "in", num_shards=2, shard_samples=4)
    gray = plain_image((7, 7, 7))
    images = {"a": gray, "b": gray, "c": plain_image(OVERWHELMS), "d": gray}
    write_shard(tmp_path / "in" / "001.tar", images)
    place = Place(str(tmp_path / "in"), str(tmp_path / "out"))
    job = make_job(place, errors={"max_attempts": MAX_ATTEMPTS})
    ends = [run_apart(job, arena.cluster)]
    while ends[-1] == -signal.SIGKILL and len(ends) <= MAX_ATTEMPTS + 2:
        ends.append(run_apart(job, arena.cluster))
    # one run to learn that there is something to be careful about
    assert ends == [-signal.SIGKILL] * (MAX_ATTEMPTS + 1) + [0]
    summary = run_here(job)
    assert (summary.exit_code, summary.counts.ok) == (0, 8)
