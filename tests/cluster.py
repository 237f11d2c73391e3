"""One Ray for a whole test session, started once whoever asks first, with faults that can be armed.

Drivers in processes of their own join it by address: starting Ray takes longer than most jobs.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sapiens_batch.failpoints import FAULTS_VARIABLE, POINTS, Action, arm, has_fired

NUM_CPUS = 4
OBJECT_STORE_BYTES = 512 << 20


@dataclass(frozen=True)
class SharedCluster:
    """A running Ray that this process is a driver of.

    Attributes:
        address: For `RAY_ADDRESS` of other drivers.
        faults: Folder of armed faults, known to the workers of every driver.
    """

    address: str
    faults: Path

    def arm(self, point: str, action: Action) -> None:
        """Make the next process that reaches a point act."""
        (self.faults / f"{point}.fired").unlink(missing_ok=True)
        (self.faults / f"{point}.go").unlink(missing_ok=True)
        arm(self.faults, point, action)

    def has_fired(self, point: str) -> bool:
        """Whether the fault last armed at a point has fired."""
        return has_fired(self.faults, point)

    def disarm(self) -> None:
        """Take back what has not fired."""
        for point in POINTS:
            (self.faults / point).unlink(missing_ok=True)

    def driver_environment(self) -> dict[str, str]:
        """Environment of a driver in a process of its own."""
        return {**os.environ, "RAY_ADDRESS": self.address, FAULTS_VARIABLE: str(self.faults)}


@cache
def shared_cluster() -> SharedCluster:
    """The Ray of this session; it ends with the process."""
    faults = Path(tempfile.mkdtemp(prefix="faults-"))
    atexit.register(shutil.rmtree, faults, ignore_errors=True)
    for name, value in {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_BACKEND_LOG_LEVEL": "fatal",
        "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        FAULTS_VARIABLE: str(faults),
    }.items():
        os.environ.setdefault(name, value)
    import ray

    ray.init(
        address="local",
        num_cpus=NUM_CPUS,
        object_store_memory=OBJECT_STORE_BYTES,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": {FAULTS_VARIABLE: str(faults)}},
    )
    atexit.register(ray.shutdown)
    return SharedCluster(ray.get_runtime_context().gcs_address, faults)
