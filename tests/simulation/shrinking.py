"""A failing history with fewer faults: those are left out without which it still fails.

Leaving out a fault changes what comes after it, so the result is another history of the same seed
that breaks the same invariant; it need not be the smallest.
"""

from __future__ import annotations

from tests.simulation.history import Outcome, simulate


def shrunk(seed: int) -> tuple[Outcome, frozenset[str]]:
    """The outcome of a failing seed with as few faults as possible, and the faults left out."""
    best = simulate(seed)
    broken = _broken(best)
    dropped: frozenset[str] = frozenset()
    for name in reversed(best.faults):
        tried = simulate(seed, dropped | {name})
        if _broken(tried) & broken:
            best, dropped = tried, dropped | {name}
    return best, dropped


def _broken(outcome: Outcome) -> set[str]:
    """The invariants that did not hold."""
    return {one.partition(":")[0] for one in outcome.violations}
