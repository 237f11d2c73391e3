"""When a job stops because too many samples are quarantined."""

from __future__ import annotations

import pytest

from sapiens_batch.driver.budget import over_budget
from sapiens_batch.protocol.documents import Counts
from sapiens_batch.spec.job import ErrorsSpec


@pytest.mark.parametrize(
    ("ok", "quarantined", "budget", "complete", "expected"),
    [
        (0, 1000, {}, True, False),
        (10, 3, {"max_quarantined": 3}, False, False),
        (10, 4, {"max_quarantined": 3}, False, True),
        (0, 1, {"max_quarantined": 0}, False, True),
        (89, 10, {"max_quarantined_fraction": 0.1}, False, False),
        (89, 11, {"max_quarantined_fraction": 0.1}, False, True),
        (90, 10, {"max_quarantined_fraction": 0.1}, False, False),
        (3, 1, {"max_quarantined_fraction": 0.1}, False, False),
        (3, 1, {"max_quarantined_fraction": 0.1}, True, True),
        (0, 0, {"max_quarantined_fraction": 0.0}, True, False),
    ],
)
def test_budget(
    ok: int, quarantined: int, budget: dict[str, float], complete: bool, expected: bool
) -> None:
    counts = Counts(ok=ok, quarantined=quarantined)
    assert over_budget(counts, ErrorsSpec(**budget), complete=complete) is expected
