"""Jobs on a cluster whose GPUs come and go: `python -m tests.chaos.elastic SCENARIO FOLDER`.

A process of its own for each, because it starts a cluster of several nodes. GPUs are numbers to Ray
here; labels need none.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster
from ray.core.generated.autoscaler_pb2 import ClusterConfig
from ray.experimental.internal_kv import _internal_kv_put

from sapiens_batch.driver.run import JobSummary
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.records import TaskLabels, TaskName, ViewBatch, ViewSpec
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.view_labeler import ViewLabeler
from sapiens_batch.verify import check_job
from tests.chaos.autoscaling import autoscaling_cluster
from tests.chaos.jobs import Messages, Place, make_job, run_here
from tests.synthetic import Synthetic, write_corpus

CHUNK_SECONDS = 0.4
BUSY_WITHIN_S = 30.0
LOST_CHUNKS = 3
"""That an actor has in flight."""


@dataclass(frozen=True)
class Logged(Synthetic):
    """Loads a labeler that notes each call under the name of its actor.

    Attributes:
        log: Folder for the notes.
    """

    log: str = ""

    def __call__(self, context: JobContext, num_threads: int | None) -> ViewLabeler:
        return _LoggedLabeler(super().__call__(context, num_threads), Path(self.log))

    def calls(self) -> dict[str, int]:
        """Calls by actor."""
        return {path.name: path.stat().st_size for path in Path(self.log).iterdir()}


class _LoggedLabeler:
    def __init__(self, inner: ViewLabeler, log: Path) -> None:
        self._inner = inner
        self._log = log / f"{os.getpid()}-{uuid.uuid4().hex}"

    def label(self, views: Mapping[ViewSpec, ViewBatch]) -> Mapping[TaskName, TaskLabels]:
        with self._log.open("a") as file:
            file.write("x")
        return self._inner.label(views)


class Trial:
    """A job in a thread, and the cluster that it runs on.

    Args:
        folder: For input, output and notes.
        num_chunks: Chunks of the job, ten a shard.
        runtime: The section of the job file.
    """

    def __init__(self, folder: Path, num_chunks: int, **runtime: Any) -> None:
        write_corpus(folder / "in", num_chunks // 10, 20)
        (folder / "log").mkdir()
        self.num_chunks = num_chunks
        self.job = make_job(Place(str(folder / "in"), str(folder / "out")), runtime=runtime)
        self.labeler = Logged(CHUNK_SECONDS, log=str(folder / "log"))
        self.messages = Messages()
        self._summaries: list[JobSummary] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        found = run_here(self.job, labeler=self.labeler, messages=self.messages)
        self._summaries.append(found)

    def start(self) -> None:
        """Begin the job; nodes can be added and removed in the main thread only."""
        self._thread.start()

    def wait_until(self, what: Callable[[], bool], within_s: float = 120.0) -> float:
        """Wait for something; the seconds that it took."""
        started = time.monotonic()
        while not what():
            assert self._thread.is_alive(), f"the job ended: {self.messages.texts}"
            assert time.monotonic() - started < within_s, self.labeler.calls()
            time.sleep(0.05)
        return time.monotonic() - started

    def has_receipts(self, count: int) -> bool:
        """Whether so many chunks are done."""
        return len(list(self.job.store.list(keys.RECEIPTS))) >= count

    def finish(self) -> None:
        """Wait for the end; check that nothing is lost."""
        self._thread.join()
        (summary,) = self._summaries
        assert summary.exit_code == 0, summary.failures
        assert summary.counts.ok == 2 * self.num_chunks
        assert check_job(Manifest.open(self.job.store)).exit_code == 0
        print(f"{sum(self.labeler.calls().values())} calls for {self.num_chunks} chunks")


@contextmanager
def cluster_of(*nodes: Mapping[str, int]) -> Iterator[Cluster]:
    """A head without CPUs, and nodes; this process is its driver."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for node in nodes:
        cluster.add_node(**node)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def grow(folder: Path) -> None:
    """One GPU at the start and three later, which nobody announced: all four get busy."""
    trial = Trial(folder, 300)
    with cluster_of({"num_cpus": 2, "num_gpus": 1}) as cluster:
        trial.start()
        trial.wait_until(lambda: trial.has_receipts(2))
        assert len(trial.labeler.calls()) == 1
        cluster.add_node(num_cpus=2, num_gpus=3)
        seconds = trial.wait_until(lambda: len(trial.labeler.calls()) == 4)
        print(f"all busy after {seconds:.1f} s")
        assert seconds < BUSY_WITHIN_S
        trial.finish()


def grow_as_announced(folder: Path) -> None:
    """The same where an autoscaler says that there can be four."""
    trial = Trial(folder, 200)
    with cluster_of({"num_cpus": 2, "num_gpus": 1}) as cluster:
        announce(num_gpus=4)
        trial.start()
        trial.wait_until(lambda: trial.has_receipts(2))
        cluster.add_node(num_cpus=2, num_gpus=3)
        seconds = trial.wait_until(lambda: len(trial.labeler.calls()) == 4)
        print(f"all busy after {seconds:.1f} s")
        assert seconds < BUSY_WITHIN_S
        trial.finish()


def begin_with_none(folder: Path) -> None:
    """No GPU at first: the job asks for one, waits for longer than it may stand still, and runs."""
    trial = Trial(folder, 20, device="cuda", no_progress_timeout_s=20)
    with cluster_of({"num_cpus": 2}) as cluster:
        trial.start()
        trial.wait_until(lambda: "waiting for a GPU" in trial.messages.texts)
        trial.wait_until(gpu_is_asked_for)
        time.sleep(25)
        cluster.add_node(num_cpus=2, num_gpus=1)
        trial.finish()


def shrink(folder: Path) -> None:
    """A node with three of four GPUs leaves: only what it had in flight is labeled again."""
    trial = Trial(folder, 120, label_actors=4)
    with cluster_of({"num_cpus": 2, "num_gpus": 1}) as cluster:
        leaving = cluster.add_node(num_cpus=2, num_gpus=3)
        trial.start()
        trial.wait_until(lambda: len(trial.labeler.calls()) == 4)
        trial.wait_until(lambda: trial.has_receipts(20))
        cluster.remove_node(leaving, allow_graceful=False)
        trial.finish()
    calls = sum(trial.labeler.calls().values())
    assert calls <= trial.num_chunks + 3 * LOST_CHUNKS


def announce(num_gpus: int) -> None:
    """Say to the cluster what an autoscaler says of its node types."""
    config = ClusterConfig()
    group = config.node_group_configs.add()
    group.name, group.max_count = "gpu", num_gpus
    group.resources["GPU"] = 1
    name = ray._raylet.GCS_AUTOSCALER_CLUSTER_CONFIG_KEY.encode()
    namespace = ray._raylet.GCS_AUTOSCALER_STATE_NAMESPACE.encode()
    _internal_kv_put(name, config.SerializeToString(), overwrite=True, namespace=namespace)


def gpu_is_asked_for() -> bool:
    """Whether an autoscaler would see that a GPU is wanted."""
    groups = ray.util.placement_group_table().values()
    return any(
        group["state"] == "PENDING" and {"GPU": 1.0} in group["bundles"].values()
        for group in groups
    )


def autoscale(folder: Path) -> None:
    """A cluster scaled to zero: the job brings all the GPUs that it may have."""
    trial = Trial(folder, 100, device="cuda", label_actors=3)
    with autoscaling_cluster(folder, max_gpus=3):
        trial.start()
        seconds = trial.wait_until(lambda: len(trial.labeler.calls()) == 3)
        print(f"all busy after {seconds:.1f} s, Ray's start included")
        assert "waiting for a GPU" in trial.messages.texts
        trial.finish()


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "grow": grow,
    "grow_as_announced": grow_as_announced,
    "begin_with_none": begin_with_none,
    "shrink": shrink,
    "autoscale": autoscale,
}


if __name__ == "__main__":
    SCENARIOS[sys.argv[1]](Path(sys.argv[2]))
