"""Named points at which tests make a job die, so that crash tests do not depend on timing.

A point costs one dictionary look-up when no fault is asked for. `SAPIENS_BATCH_FAULTS` names a
folder that all processes of a job see; a file there, named after a point and holding an action,
arms it. Whichever process reaches the point first takes the file away and acts, so that each armed
fault fires once. What a job does after a fault is decided elsewhere.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Literal

from sapiens_batch.errors import StorageError

FAULTS_VARIABLE = "SAPIENS_BATCH_FAULTS"
DRIVER_VARIABLE = "SAPIENS_BATCH_DRIVER_PID"

POINTS = (
    "prepare",
    "label",
    "before-data",
    "mid-arrays",
    "after-arrays",
    "before-receipt",
    "receipt-response",
    "after-receipt",
    "before-seal",
    "during-seal",
    "before-commit",
    "commit-response",
    "after-commit",
)
"""Every point, in the order in which a chunk and then its shard pass them. A `-response` point lies
between a create that took effect and its answer: `raise` there is a lost response."""

Action = Literal["kill", "kill-driver", "raise", "wait"]
"""SIGKILL to this process; SIGKILL to the job's driver and then to this process; an exception as a
failing store raises it; or wait until a file named after the point and `.go` appears."""

WAIT_TIMEOUT_S = 120.0


class InjectedFaultError(StorageError):
    """Raised at a point whose action is `raise`."""


def arm(folder: Path, point: str, action: Action) -> None:
    """Make the first process that reaches a point act.

    Raises:
        ValueError: There is no such point.
    """
    if point not in POINTS:
        raise ValueError(f"no fault point {point!r}; there are {', '.join(POINTS)}")
    unfinished = folder / f"{point}.new"
    unfinished.write_text(action)
    unfinished.rename(folder / point)


def has_fired(folder: Path, point: str) -> bool:
    """Whether an armed point was reached."""
    return (folder / f"{point}.fired").exists()


def forwarded_environment() -> dict[str, str]:
    """The variables that worker processes need so that faults reach them; usually none."""
    if FAULTS_VARIABLE not in os.environ:
        return {}
    return {FAULTS_VARIABLE: os.environ[FAULTS_VARIABLE], DRIVER_VARIABLE: str(os.getpid())}


def reach(point: str) -> None:
    """Pass a named point; does nothing unless a fault is armed there.

    Raises:
        InjectedFaultError: The point's action is `raise`.
    """
    folder = os.environ.get(FAULTS_VARIABLE)
    if not folder:
        return
    try:
        action = (Path(folder) / point).rename(Path(folder) / f"{point}.fired").read_text()
    except FileNotFoundError:
        return
    if action == "raise":
        raise InjectedFaultError(f"fault asked for at {point}")
    if action == "wait":
        _wait_for(Path(folder) / f"{point}.go")
        return
    if action == "kill-driver" and DRIVER_VARIABLE in os.environ:
        os.kill(int(os.environ[DRIVER_VARIABLE]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
