"""What a Ray cluster has and can have, and how to wait until it has a GPU.

A GPU that is asked for is what makes an autoscaler bring a node, so waiting asks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import ray
import ray._private.state
import ray._private.worker
from ray.util.placement_group import placement_group, remove_placement_group

from sapiens_batch.driver.sizing import Cluster
from sapiens_batch.errors import SpecError

_POLL_S = 1.0


def look_at_cluster() -> Cluster:
    """What the connected cluster has now, and what its autoscaler can bring, if it has one."""
    present = ray.cluster_resources()
    most = _node_types()
    return Cluster(
        num_cpus=present.get("CPU", 0.0),
        num_gpus=present.get("GPU", 0.0),
        max_cpus=None if most is None else most.get("CPU", 0.0),
        max_gpus=None if most is None else most.get("GPU", 0.0),
    )


def _node_types() -> dict[str, float] | None:
    """Resources of all nodes that an autoscaler may start; None where there is no autoscaler."""
    config = None
    # there is no public way to what an autoscaler told the cluster of its node types
    with contextlib.suppress(Exception):
        config = ray._private.state.state.get_cluster_config()
    if config is None or not config.node_group_configs:
        return None
    found: dict[str, float] = {}
    for group in config.node_group_configs:
        count = float("inf") if group.max_count < 0 else group.max_count
        for name, amount in group.resources.items():
            if count and amount:
                found[name] = found.get(name, 0.0) + count * amount
    limits = dict(config.max_resources)
    return {name: min(amount, limits.get(name, amount)) for name, amount in found.items()}


def _is_started_here() -> bool:
    """Whether this process started its Ray, which then has this machine alone."""
    # connecting to a cluster makes a node object too; there is no public way to tell them apart
    node = ray._private.worker._global_node
    return node is not None and node.is_head()


def wait_for_gpu(message: Callable[[str], None]) -> None:
    """Return when the cluster has a GPU; asks its autoscaler for one meanwhile.

    Args:
        message: Told once, where there is something to wait for.

    Raises:
        SpecError: There never will be one: this process started a Ray of its own.
    """
    if ray.cluster_resources().get("GPU", 0.0) >= 1:
        return
    if _is_started_here():
        raise SpecError(
            "runtime.device: cuda, but Ray finds no GPU on this machine: set runtime.device to cpu "
            "or auto, or runtime.ray_address to a cluster that has GPUs or can bring them"
        )
    message("waiting for a GPU")
    group = placement_group([{"GPU": 1}])
    try:
        while not group.wait(_POLL_S):
            pass
    finally:
        remove_placement_group(group)
