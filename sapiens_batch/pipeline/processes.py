"""Processes of our own that may die of what they work on, seen to their end.

They are started as `python -m` and spoken to over standard input and output; what is said is left
to `isolate` and `read_apart`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys


def start_process(module: str) -> subprocess.Popen[bytes]:
    """Run a module of this package in a process with pipes to its input and from its output."""
    return subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # workers may find the package by paths that were added while they ran
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, if it still runs, and close its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def ending(process: subprocess.Popen[bytes]) -> str:
    """How a process that closed its pipes ended: its exit status, or the signal."""
    code = process.wait()
    return f"exit status {code}" if code >= 0 else signal.Signals(-code).name
