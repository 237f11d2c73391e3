"""A job whose only node for labeling is taken away and replaced while it runs.

A process of its own, because it starts a cluster of several nodes: the context on standard input.
"""

from __future__ import annotations

import pickle
import sys
import threading
import time

import ray
from ray.cluster_utils import Cluster

from sapiens_batch.protocol import keys
from tests.chaos.jobs import run_here
from tests.synthetic import Synthetic

LOST_AFTER_RECEIPTS = 2


def main() -> None:
    """Run the job and lose the node after the first receipts."""
    context = pickle.load(sys.stdin.buffer)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    node = cluster.add_node(num_cpus=4)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    exit_codes: list[int] = []
    # nodes can be added and removed in the main thread only
    driver = threading.Thread(
        target=lambda: exit_codes.append(run_here(context, labeler=Synthetic(0.3)).exit_code)
    )
    driver.start()
    while len(list(context.store.list(keys.RECEIPTS))) < LOST_AFTER_RECEIPTS:
        time.sleep(0.05)
    cluster.remove_node(node, allow_graceful=False)
    cluster.add_node(num_cpus=4)
    driver.join()
    ray.shutdown()
    cluster.shutdown()
    sys.exit(exit_codes[0])


if __name__ == "__main__":
    main()
