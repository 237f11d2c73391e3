"""A Ray whose autoscaler starts nodes on this machine, with GPUs that are numbers to Ray.

Ray's own `AutoscalingCluster` begins by ending every Ray of the machine.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.util import get_node_ip_address

ENVIRONMENT = {
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    "RAY_FAKE_CLUSTER": "1",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
}

# the autoscaler insists on them
EMPTY = (
    "initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands",
    "head_start_ray_commands", "worker_start_ray_commands", "cluster_synced_files",
    "rsync_exclude", "rsync_filter",
)  # fmt: skip


@contextmanager
def autoscaling_cluster(folder: Path, max_gpus: int) -> Iterator[None]:
    """A head without CPUs and an autoscaler that may start nodes; this process is its driver."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        address = f"{get_node_ip_address()}:{probe.getsockname()[1]}"
    (folder / "autoscaler.json").write_text(json.dumps(_config(address, max_gpus)))
    temporary = tempfile.mkdtemp(prefix="ray-")  # paths of sockets must be short
    command = [
        str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--num-cpus=0",
        f"--port={address.rpartition(':')[2]}", f"--temp-dir={temporary}",
        "--include-dashboard=false", f"--autoscaling-config={folder}/autoscaler.json",
    ]  # fmt: skip
    log = folder / "head.log"  # a pipe that nobody reads would stop the head
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, env=os.environ | ENVIRONMENT, start_new_session=True, stdout=output
        ) as head,
    ):
        try:
            while b"runtime started" not in log.read_bytes():
                assert head.poll() is None, log.read_text()
                time.sleep(0.1)
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
            yield
            ray.shutdown()
        finally:
            os.killpg(head.pid, signal.SIGKILL)  # the nodes are in its group
            shutil.rmtree(temporary, ignore_errors=True)


def _config(address: str, max_gpus: int) -> dict[str, Any]:
    """Nodes of one GPU each, none at first."""
    return {
        "cluster_name": "elastic",
        "max_workers": max_gpus,
        "provider": {
            "type": "fake_multinode",
            "gcs_address": address,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
        },
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "gpu": {
                "resources": {"CPU": 2, "GPU": 1, "object_store_memory": 100 << 20},
                "node_config": {},
                "max_workers": max_gpus,
            },
        },
        "head_node_type": "ray.head.default",
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 1,
        "auth": {},
        "docker": {},
        "file_mounts": {},
        "file_mounts_sync_continuously": False,
        **{name: [] for name in EMPTY},
    }
