"""Processes of our own that may die of what they work on, seen to their end.

They are spoken to over standard input and output; what is said is left to `guard`, and to the
pipeline's `isolate` and `read_apart`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence


def module_command(module: str) -> tuple[str, ...]:
    """The command that runs a module of this package."""
    return (sys.executable, "-m", module)


def start_process(command: Sequence[str], pass_fds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """Start a process with pipes to its input and from its output.

    Args:
        command: Its command line.
        pass_fds: Descriptors of ours that it keeps.
    """
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=pass_fds,
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
