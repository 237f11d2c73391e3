"""A job that is asked to stop ends in order, says so, and goes on where it stopped."""

from __future__ import annotations

import signal
import time

import pytest

from sapiens_batch.protocol import keys
from tests.chaos.jobs import DRIVER_TIMEOUT_S, check_whole, run_here, start_driver
from tests.chaos.matrix import Arena


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_signal_ends_a_job_with_exit_code_5_and_nothing_torn(
    arena: Arena, number: signal.Signals
) -> None:
    job = arena.job(f"stopped-{number.name}")
    with start_driver(job, arena.cluster, seconds=1.0) as driver:
        while driver.poll() is None and not list(job.store.list(keys.RECEIPTS)):
            time.sleep(0.05)
        driver.send_signal(number)
        assert driver.wait(DRIVER_TIMEOUT_S) == 5
    rest = run_here(job)
    assert rest.exit_code == 0
    assert rest.new_samples < 15, "what was labeled before is not labeled again"
    check_whole(job, arena.expected)
