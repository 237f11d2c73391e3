"""Many histories, on all cores, and what they came to."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.simulation.history import Outcome, simulate
from tests.simulation.seams import outside_replaced
from tests.simulation.shrinking import shrunk

BATCH = 250
SHOWN_EVERY_S = 10.0
MAX_FAILURES = 5


@dataclass(slots=True)
class Tally:
    """What many histories came to."""

    histories: int = 0
    calls: int = 0
    told: int = 0
    happened: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count one history."""
        self.histories += 1
        self.calls += outcome.calls
        self.told += bool(outcome.told)
        self.happened += outcome.happened
        if outcome.violations:
            self.failed.append(outcome.seed)

    def __iadd__(self, other: Tally) -> Tally:
        self.histories += other.histories
        self.calls += other.calls
        self.told += other.told
        self.happened += other.happened
        self.failed += other.failed
        return self

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"{self.histories:,} histories, {self.calls:,} store calls, {self.told:,} of them"
        yield "ended with damage that cannot be mended and was told; what happened in them:"
        for what, times in self.happened.most_common():
            yield f"  {times:12,}  {what}"


def run_batch(seeds: range) -> Tally:
    """Simulate some histories."""
    tally = Tally()
    with outside_replaced():
        for seed in seeds:
            tally.add(simulate(seed))
    return tally


def explain(seed: int) -> None:
    """Print a failing history with as few faults as show it."""
    with outside_replaced():
        outcome, dropped = shrunk(seed)
    print("\n".join(outcome.lines))
    drop = f" --drop {','.join(sorted(dropped))}" if dropped else ""
    print(f"replay: python -m tests.simulation --replay {seed}{drop}\n", flush=True)


def run_many(first: int, count: int, processes: int) -> Tally:
    """Simulate many histories in processes of their own; stops after a few failures."""
    total, began_s = Tally(), time.monotonic()
    shown_s = began_s
    batches = [
        range(start, min(start + BATCH, first + count))
        for start in range(first, first + count, BATCH)
    ]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for tally in pool.imap(run_batch, batches):
            total += tally
            for seed in tally.failed:
                explain(seed)
            if time.monotonic() - shown_s > SHOWN_EVERY_S or len(total.failed) >= MAX_FAILURES:
                shown_s = time.monotonic()
                speed = total.histories / (shown_s - began_s)
                print(
                    f"{total.histories:,} of {count:,} histories, {speed:.0f} a second, "
                    f"{len(total.failed)} failed; to go on from here: "
                    f"--first {first + total.histories} --count {count - total.histories}",
                    flush=True,
                )
            if len(total.failed) >= MAX_FAILURES:
                pool.terminate()
                break
    return total
