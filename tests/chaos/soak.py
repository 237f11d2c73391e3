"""One job on SeaweedFS, killed at random: `python -m tests.chaos.soak [KILLS] [SEED]`.

Drivers and workers are killed with SIGKILL at random times until enough have died; then the job is
finished and read back by `verify` and by a reader that shares no code with the package.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from sapiens_batch.protocol import keys
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.stages.context import JobContext
from sapiens_batch.verify import check_job
from tests.chaos.independent_reader import read_job
from tests.chaos.jobs import DRIVER_TIMEOUT_S, make_job, run_here, start_driver
from tests.chaos.matrix import place_of
from tests.cluster import SharedCluster, shared_cluster

NUM_SHARDS, SHARD_SAMPLES = 24, 9
CHUNK_SECONDS = 1.0


def main(num_kills: int, seed: int) -> None:
    """Kill, finish, check, and print figures."""
    chance = random.Random(seed)
    with place_of("weed", num_shards=NUM_SHARDS, shard_samples=SHARD_SAMPLES) as place:
        job = make_job(replace(place, output=f"{place.output}/soak"))
        started = time.monotonic()
        killed = kill_at_random(job, shared_cluster(), num_kills, chance)
        summary = run_here(job)
        elapsed_s = time.monotonic() - started
        report = check_job(Manifest.open(job.store))
        rows = read_job(job.store.uri, job.spec.output.storage_options)
    expected = {f"{s:03}-{i:03}" for s in range(NUM_SHARDS) for i in range(SHARD_SAMPLES)}
    found = {row["key"] for row in rows}
    print(f"killed {dict(killed)} in {elapsed_s:.0f} s; exit code {summary.exit_code}")
    print(f"verify: exit code {report.exit_code}, {report.checked_objects} objects read")
    print(f"orphans: { {name: pile.objects for name, pile in report.orphans.items()} }")
    print(f"independent reader: {len(expected - found)} lost, {len(rows) - len(found)} doubled")
    assert summary.exit_code == report.exit_code == 0
    assert found == expected
    assert len(rows) == len(expected)
    assert all(row["status"] == "ok" for row in rows)


def kill_at_random(
    job: JobContext, cluster: SharedCluster, num_kills: int, chance: random.Random
) -> Counter[str]:
    """Run a job again and again while processes of it are killed; how many of each kind were."""
    killed: Counter[str] = Counter()
    driver: subprocess.Popen[bytes] | None = None
    while killed.total() < num_kills and not _is_complete(job):
        if driver is None or driver.poll() is not None:
            driver = start_driver(job, cluster, seconds=CHUNK_SECONDS)
        time.sleep(chance.uniform(1.0, 20.0))
        workers = busy_workers()
        if chance.random() < 0.5 and workers:
            _kill(chance.choice(workers))
            killed["worker"] += 1
        elif driver.poll() is None:
            driver.kill()
            driver.wait()
            killed["driver"] += 1
    if driver is not None:
        driver.wait(DRIVER_TIMEOUT_S)
    return killed


def _is_complete(job: JobContext) -> bool:
    return len(list(job.store.list(keys.COMMITS))) == NUM_SHARDS


def busy_workers() -> list[int]:
    """Processes of stages below this one; Ray's own are left alone, the node falls with them."""
    parents, names = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                status = (folder / "stat").read_text().rpartition(")")[2].split()
                parents[int(folder.name)] = int(status[1])
                names[int(folder.name)] = (folder / "cmdline").read_text()
    return [
        pid
        for pid, name in names.items()
        if name.startswith(("ray::Map", "ray::Read", "ray::_seal")) and _descends(pid, parents)
    ]


def _descends(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != os.getpid():
        pid = parents[pid]
    return pid == os.getpid()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    arguments = [int(one) for one in sys.argv[1:]]
    main(*(arguments + [40, 0][len(arguments) :]))
