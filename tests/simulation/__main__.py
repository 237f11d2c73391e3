"""`python -m tests.simulation`: many histories on all cores, or one again.

    python -m tests.simulation --first 0 --count 1000000     as `make simulate` does
    python -m tests.simulation --replay 4711 [--drop driver-1.0,damage.1]    prints one history

A failing seed is printed with its history, after faults that do not matter were taken away, and
with the command that replays it. A stopped run says where to go on.
"""

from __future__ import annotations

import argparse
import os
import sys

from tests.simulation.history import simulate
from tests.simulation.many import run_many
from tests.simulation.seams import outside_replaced


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=10_000, help="number of seeds")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--replay", type=int, help="print the history of this seed")
    parser.add_argument("--drop", default="", help="faults to leave out of it, by name")
    options = parser.parse_args()
    if options.replay is not None:
        dropped = [one for one in options.drop.split(",") if one]
        with outside_replaced():
            outcome = simulate(options.replay, dropped, show=True)
        print("\n".join(outcome.lines))
        return 1 if outcome.violations else 0
    total = run_many(options.first, options.count, options.processes)
    print("\n".join(total.lines()))
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
