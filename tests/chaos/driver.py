"""A driver in a process of its own, to be killed: the job's context on standard input."""

from __future__ import annotations

import pickle
import sys

from sapiens_batch.driver.partition import Partition
from sapiens_batch.driver.progress import LogReporter
from sapiens_batch.driver.run import carry_out
from sapiens_batch.protocol.manifest import Manifest
from tests.synthetic import Synthetic


def main() -> None:
    """Run the job; the exit status is that of the command."""
    context = pickle.load(sys.stdin.buffer)
    summary = carry_out(
        context,
        Manifest.open(context.store),
        LogReporter(sys.stderr),
        partition=Partition.parse(sys.argv[2]),
        load=Synthetic(float(sys.argv[1])),
    )
    sys.exit(summary.exit_code)


if __name__ == "__main__":
    main()
