"""Named points at which tests make a job die, so that crash tests do not depend on timing.

A point costs one dictionary look-up when no fault is asked for. `SAPIENS_BATCH_FAULTS` holds
`point=action` pairs separated by commas; each fires once for all processes of a job, guarded by a
token file in `SAPIENS_BATCH_FAULT_TOKENS`. Actions: `kill` (SIGKILL to this process),
`kill-driver` (SIGKILL to the process that started the job) and `raise`.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

FAULTS_VARIABLE = "SAPIENS_BATCH_FAULTS"
TOKENS_VARIABLE = "SAPIENS_BATCH_FAULT_TOKENS"
DRIVER_VARIABLE = "SAPIENS_BATCH_DRIVER_PID"

POINTS = (
    "before-data",
    "after-arrays",
    "after-parts",
    "after-receipt",
    "before-seal",
    "during-seal",
    "before-commit",
    "after-commit",
)
"""Every point, in the order in which a chunk and then its shard pass them."""


class InjectedFaultError(Exception):
    """Raised at a point whose action is `raise`."""


def forwarded_environment() -> dict[str, str]:
    """The variables that worker processes need so that faults reach them; usually none."""
    if FAULTS_VARIABLE not in os.environ:
        return {}
    names = (FAULTS_VARIABLE, TOKENS_VARIABLE)
    return {name: os.environ[name] for name in names} | {DRIVER_VARIABLE: str(os.getpid())}


def reach(point: str) -> None:
    """Pass a named point; does nothing unless a fault is asked for there.

    Raises:
        InjectedFaultError: The point's action is `raise`.
    """
    wanted = os.environ.get(FAULTS_VARIABLE)
    if not wanted:
        return
    action = dict(pair.split("=", 1) for pair in wanted.split(",")).get(point)
    if action is None or not _take_token(point):
        return
    if action == "raise":
        raise InjectedFaultError(f"fault asked for at {point}")
    victim = os.environ.get(DRIVER_VARIABLE, "") if action == "kill-driver" else ""
    os.kill(int(victim or os.getpid()), signal.SIGKILL)
    time.sleep(0.5)


def _take_token(point: str) -> bool:
    token = Path(os.environ[TOKENS_VARIABLE]) / point
    try:
        token.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
