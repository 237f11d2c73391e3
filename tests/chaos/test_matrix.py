"""The short form of the fault matrix; `make chaos` runs all of it, on two stores.

Faults are met several to a job, so that what is covered here is every point with every action that
does not kill the driver, and the driver killed where it has most to lose.
"""

from __future__ import annotations

import signal

import pytest

from sapiens_batch.failpoints import POINTS
from tests.chaos.jobs import check_whole, run_apart, run_here
from tests.chaos.matrix import Arena, two_drivers, zombie


def test_a_job_that_fails_once_at_every_point_ends_like_an_undisturbed_one(arena: Arena) -> None:
    job = arena.job("all-raise")
    for point in POINTS:
        arena.cluster.arm(point, "raise")
    assert run_here(job).exit_code == 0
    assert [point for point in POINTS if not arena.cluster.has_fired(point)] == []
    check_whole(job, arena.expected)


def test_a_job_whose_workers_die_at_every_point_ends_like_an_undisturbed_one(arena: Arena) -> None:
    job = arena.job("all-kill")
    for point in POINTS:
        arena.cluster.arm(point, "kill")
    assert run_here(job).exit_code == 0
    assert [point for point in POINTS if not arena.cluster.has_fired(point)] == []
    check_whole(job, arena.expected)


@pytest.mark.slow
def test_a_job_whose_driver_is_killed_again_and_again_ends_like_an_undisturbed_one(
    arena: Arena,
) -> None:
    job = arena.job("all-kill-driver")
    for point in ("after-receipt", "commit-response"):
        arena.cluster.arm(point, "kill-driver")
        assert run_apart(job, arena.cluster) == -signal.SIGKILL
        assert arena.cluster.has_fired(point)
    assert run_here(job).exit_code == 0
    check_whole(job, arena.expected)


def test_two_drivers_of_one_job_waste_work_and_change_nothing(arena: Arena) -> None:
    two_drivers(arena)


@pytest.mark.parametrize(
    "point", ["after-arrays", pytest.param("before-receipt", marks=pytest.mark.slow)]
)
def test_a_writer_that_outlives_its_driver_changes_nothing(arena: Arena, point: str) -> None:
    zombie(arena, point)
