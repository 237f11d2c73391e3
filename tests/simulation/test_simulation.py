"""Ten thousand histories of the commit protocol keep I1 to I10; rules left out are missed."""

from __future__ import annotations

import itertools

import pytest

from tests.simulation.history import simulate
from tests.simulation.many import run_many
from tests.simulation.sabotage import SABOTAGES
from tests.simulation.seams import outside_replaced

HISTORIES = 10_000
PROCESSES = 2
FOUND_WITHIN = 12_000
"""Histories in which each sabotage must be found; most are within a hundred."""

KINDS = {
    "listing misses an object", "listing shows a removed object", "clock differs", "bit flipped",
    "truncated", "lost", "lost answer", "repeated", "lands late", "refused", "dies before",
    "dies after", "paused before", "paused after", "attempt doubled",
}  # fmt: skip


def test_ten_thousand_histories_keep_every_invariant() -> None:
    tally = run_many(0, HISTORIES, PROCESSES)
    assert tally.failed == [], "see the printed histories"
    assert tally.histories == HISTORIES
    assert {kind for kind, times in tally.happened.items() if times >= HISTORIES // 100} >= KINDS


def test_a_seed_gives_the_same_history_again() -> None:
    with outside_replaced():
        one, other = (simulate(4711, show=True) for _ in range(2))
    assert one.lines == other.lines
    assert len(one.lines) > 100


@pytest.mark.slow
@pytest.mark.parametrize("name", SABOTAGES)
def test_a_rule_that_is_left_out_is_missed(name: str) -> None:
    with outside_replaced(), SABOTAGES[name]():
        found = (seed for seed in range(FOUND_WITHIN) if simulate(seed).violations)
        assert list(itertools.islice(found, 1))
