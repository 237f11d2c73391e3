"""How long a driver takes to plan, resume and open a large job, with how much memory.

Listings are synthetic: the store answers from arithmetic, page by page as an object store does, so
that what is measured is the driver's own time and memory. `--commits` measures the rate at which
real stores take commits. Every measurement runs in a process of its own.

    python benchmarks/manifest.py [--shards 100000] [--receipts 1000000]
    python benchmarks/manifest.py --commits 500
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from sapiens_batch.labelset import LabelSet
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.documents import Counts, StoredObject
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.plan import write_plan
from sapiens_batch.protocol.snapshot import write_snapshot
from sapiens_batch.records import Shard
from sapiens_batch.storage import Store, open_store
from sapiens_batch.storage.base import ObjectInfo
from sapiens_batch.storage.memory import MemoryStore

DIGEST = "5" * 64
JOB = JobDocument(name="large", spec={}, spec_digest=DIGEST, schemas=())
COMMIT_THREADS = 4
"""As many as the driver seals with."""


def shard(number: int) -> Shard:
    """A shard with an id in the order of its number."""
    key = f"train/{number:06d}.tar"
    return Shard(f"{number:032x}"[::-1], key, f"s3://corpus/{key}", "9" * 32, 2**28)


def commit(number: int) -> Commit:
    """A commit of 1,000 samples in chunks of 32, as small jobs write it."""
    one = shard(number)
    stops = [*range(32, 1000, 32), 1000]
    stored = StoredObject(
        key=keys.table("images", one.shard_id, "e" * 32), size_bytes=9, sha256=DIGEST, rows=1000
    )
    return Commit(
        spec_digest=DIGEST,
        shard_id=one.shard_id,
        shard_key=one.key,
        shard_version=one.version,
        num_samples=1000,
        counts=Counts(ok=990, empty=9, quarantined=1, persons=1500),
        reasons={"decode.truncated": 1},
        write_id="d" * 32,
        tables={"images": stored},
        chunks=tuple((max(0, (stop - 1) // 32 * 32), stop, "e" * 32) for stop in stops),
        created="2026-01-01T00:00:00+00:00",
    )


class SyntheticStore(MemoryStore):
    """Memory that lists receipts and commits which are not there.

    Args:
        num_shards: Shards of the job.
        num_receipts: Receipts, spread evenly over the shards.
        num_commits: Commits.
    """

    def __init__(self, num_shards: int, num_receipts: int, num_commits: int) -> None:
        super().__init__(uuid.uuid4().hex)
        self._num_shards = num_shards
        self._num_receipts = num_receipts
        self._num_commits = num_commits

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """As a store would, in no order of shards."""
        if prefix == keys.RECEIPTS:
            for number in range(self._num_receipts):
                owner, chunk = number % self._num_shards, number // self._num_shards
                yield ObjectInfo(keys.receipt(shard(owner).shard_id, chunk), 900, 1.0)
        elif prefix == keys.COMMITS:
            for number in range(self._num_commits):
                yield ObjectInfo(keys.commit(shard(number).shard_id), 3000, 1.0)
        else:
            yield from super().list(prefix)


def measure_plan(num_shards: int, num_receipts: int) -> str:
    """Write a plan."""
    store = SyntheticStore(num_shards, 0, 0)
    manifest = Manifest.create(store, JOB)
    document = write_plan(manifest.store, map(shard, range(num_shards)))
    return f"{document.num_shards} shards"


def measure_resume(num_shards: int, num_receipts: int) -> str:
    """Find what is left to do of a job with receipts for every shard and no commit."""
    store = SyntheticStore(num_shards, num_receipts, 0)
    manifest = Manifest.create(store, JOB)
    write_plan(manifest.store, map(shard, range(num_shards)))
    todo = manifest.todo()
    return f"{len(todo)} shards, {sum(len(one.done_chunks) for one in todo)} chunks done"


def open_labels(num_shards: int) -> LabelSet:
    """The labels of a complete job that has a snapshot."""
    path = Path(tempfile.gettempdir()) / f"snapshot-{num_shards}.parquet"
    key = path.with_suffix(".key").read_text()
    store = SyntheticStore(num_shards, 0, num_shards)
    manifest = Manifest.create(store, JOB)
    store.create(key, path.read_bytes())
    return LabelSet(manifest)


def measure_open(num_shards: int, num_receipts: int) -> str:
    """Open labels."""
    return f"{len(open_labels(num_shards).commits)} shards"


def measure_dataset(num_shards: int, num_receipts: int) -> str:
    """Open labels and make the Arrow dataset of a table."""
    return f"{len(open_labels(num_shards).images.files)} files"


def write_snapshot_file(num_shards: int) -> None:
    """The snapshot that `open_labels` reads; not measured."""
    store = MemoryStore(uuid.uuid4().hex)
    manifest = Manifest.create(store, JOB)
    for number in range(num_shards):
        store.create(keys.commit(shard(number).shard_id), commit(number).to_bytes())
    key = write_snapshot(manifest)
    if key is None:
        raise SystemExit("too few shards for a snapshot")
    path = Path(tempfile.gettempdir()) / f"snapshot-{num_shards}.parquet"
    path.write_bytes(store.read(key))
    path.with_suffix(".key").write_text(key)


def measure_commits(store: Store, number: int) -> float:
    """Commits a second that a store takes."""
    documents = [(keys.commit(shard(n).shard_id), commit(n).to_bytes()) for n in range(number)]
    started = time.perf_counter()
    with ThreadPoolExecutor(COMMIT_THREADS) as pool:
        if not all(pool.map(lambda one: store.create(*one), documents)):
            raise SystemExit("a commit was refused")
    return number / (time.perf_counter() - started)


def commit_rates(number: int) -> None:
    """Print the rates of memory, a local folder and SeaweedFS."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tests.s3.servers import seaweedfs, weed_binary

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stores = {
            "memory": open_store(f"memory://{uuid.uuid4().hex}"),
            "local": open_store(str(folder / "job")),
        }
        if binary := weed_binary():
            server = stack.enter_context(seaweedfs(binary, folder))
            stores["SeaweedFS"] = open_store(server.uri("job"), server.options)
        for name, store in stores.items():
            print(f"{name:10} {measure_commits(store, number):8.0f} commits/s")


MEASURES: dict[str, Callable[[int, int], str]] = {
    "plan": measure_plan,
    "resume": measure_resume,
    "open": measure_open,
    "dataset": measure_dataset,
}


def main() -> None:
    """Run every measurement in its own process, or the one that is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=int, default=100_000)
    parser.add_argument("--receipts", type=int, default=1_000_000)
    parser.add_argument("--commits", type=int, help="measure commit rates with so many instead")
    parser.add_argument("--only", choices=[*MEASURES, "snapshot"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.commits:
        commit_rates(options.commits)
    elif options.only == "snapshot":
        write_snapshot_file(options.shards)
    elif options.only:
        started = time.perf_counter()
        what = MEASURES[options.only](options.shards, options.receipts)
        rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        wall_s, cpu_s = time.perf_counter() - started, time.process_time()
        print(json.dumps([wall_s, cpu_s, rss_mb, what]))
    else:
        sizes = ["--shards", str(options.shards), "--receipts", str(options.receipts)]
        for name in ("snapshot", *MEASURES):
            command = [sys.executable, __file__, "--only", name, *sizes]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            if done.stdout:
                wall_s, cpu_s, rss_mb, what = json.loads(done.stdout)
                times = f"{wall_s:6.1f} s wall {cpu_s:6.1f} s CPU {rss_mb:6.0f} MB RSS"
                print(f"{name:8}{times}  {what}", flush=True)


if __name__ == "__main__":
    main()
