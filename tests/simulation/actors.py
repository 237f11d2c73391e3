"""The processes of a simulated job: drivers with their workers, repair, retry and gc.

A driver has the shape of the real one without Ray: open, plan, what is to do, label in passes,
seal, order damaged shards anew. What is stored goes through `protocol` and `verify`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, Final, Literal

from sapiens_batch.driver import open_job
from sapiens_batch.errors import DamagedReceiptError, ProtocolError, StorageError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.open_shard import OpenShard
from sapiens_batch.protocol.put import ChunkHeader, put_chunk
from sapiens_batch.protocol.receipt import Receipt, read_receipt
from sapiens_batch.protocol.seal import SealJob, seal_shard
from sapiens_batch.protocol.snapshot import write_snapshot
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.records import Shard
from sapiens_batch.storage import MissingObjectError
from sapiens_batch.verify.garbage import collect_garbage
from sapiens_batch.verify.job import check_job
from sapiens_batch.verify.repair import order_repairs
from tests.simulation.chunks import JOB, SCHEMAS, JsonTables, encoded_chunk
from tests.simulation.faults import Faults
from tests.simulation.invariants import GRACE_S, Watch
from tests.simulation.store import Objects, SimulatedStore
from tests.simulation.truth import CHUNK_SAMPLES, Truth
from tests.simulation.world import Actor, World

PASSES: Final = 4

Process = Literal["driver", "repair", "retry", "gc"]


class Setting:
    """What the processes of a history share, and how they are started.

    Args:
        world: Time and actors.
        objects: The store.
        truth: The corpus, and what attempts find in it.
        watch: Told what drivers claim.
        faults: Where actors get theirs.
        rng: Draws what is no fault: clocks, double work.
    """

    def __init__(
        self,
        world: World,
        objects: Objects,
        truth: Truth,
        watch: Watch,
        faults: Faults,
        rng: random.Random,
    ) -> None:
        self.world, self.objects, self.truth, self.watch = world, objects, truth, watch
        self._faults = faults
        self._rng = rng
        self._count = 0
        self._skew_s = rng.choice((0.0, 0.0, 1.2 * GRACE_S))
        self._doubles = rng.random() < 0.3
        self.snapshots = rng.random() < 0.03

    def start(self, kind: Process, part: tuple[int, int] = (0, 1)) -> Actor:
        """Start a process: a `run`, a `verify --repair`, a `retry` with its run, or a `gc`."""
        self._count += 1
        actor = self._actor(f"{kind}-{self._count}", kind)
        store = SimulatedStore(self.objects, self.world, actor)
        acts: dict[Process, Callable[[], Any]] = {
            "driver": lambda: Driver(self, actor, store, part).run(),
            "repair": lambda: repair(store),
            "retry": lambda: Driver(self, actor, store, part).retry(),
            "gc": lambda: sum(1 for _ in collect_garbage(Manifest.open(store), grace_s=GRACE_S)),
        }
        self.world.spawn(actor, acts[kind])
        return actor

    def start_workers(self, driver: Actor, name: str, act: Callable[[SimulatedStore], Any]) -> None:
        """Start an attempt at a chunk, sometimes twice, as Ray does when it loses sight of one."""
        doubled = self._doubles and self._rng.random() < 0.2
        for number in range(1 + doubled):
            self._count += 1
            actor = self._actor(f"{name}-{self._count}", "worker")
            actor.parent = driver
            store = SimulatedStore(self.objects, self.world, actor)
            self.world.spawn(actor, lambda store=store: act(store))
            if number:
                self.world.happened["attempt doubled"] += 1

    def number(self, shard_id: str) -> int:
        """Which shard of the corpus one is, for names."""
        return [one.shard_id for one in self.truth.corpus.shards].index(shard_id)

    def plan(self, manifest: Manifest) -> tuple[Shard, ...]:
        """Plan the input as a driver does; returns what is listed of it now."""
        listed = self.truth.corpus.listed(self.world.calls)
        source = SimpleNamespace(uris=("/in",))
        open_job._plan(
            manifest, SimpleNamespace(shards=listed, spec=SimpleNamespace(source=source))
        )
        return listed

    def _actor(self, name: str, kind: str) -> Actor:
        skew_s = self._rng.choice((-1, 0, 1)) * self._skew_s
        if skew_s:
            self.world.happened["clock differs"] += 1
        return Actor(
            name,
            kind,
            self._faults.strikes(name, kind),
            skew_s,
            orphans_die=self._rng.random() < 0.5,
        )


def repair(store: SimulatedStore) -> int:
    """`verify --repair`: order what is damaged; returns how many findings there were.

    Raises:
        ProtocolError: There is damage that no order can mend.
    """
    manifest = Manifest.open(store)
    report = check_job(manifest)
    _, beyond = order_repairs(manifest, report)
    if beyond:
        raise ProtocolError("; ".join(f"{one.fault} {one.key} {one.message}" for one in beyond))
    return len(report.findings)


class Driver:
    """One run.

    Args:
        setting: The history.
        actor: The driver's own actor.
        store: Its store.
        part: (i, n): it works on every n-th shard.
    """

    def __init__(
        self, setting: Setting, actor: Actor, store: SimulatedStore, part: tuple[int, int]
    ) -> None:
        self._setting = setting
        self._actor = actor
        self._store = store
        self._part = part
        self._listed: tuple[Shard, ...] = ()
        self._open: dict[str, OpenShard] = {}

    def run(self) -> bool:
        """Open the job and label what is to do; returns whether it is complete."""
        return self._carry_out(self._open_job())

    def retry(self) -> bool:
        """Order quarantined samples and run."""
        manifest = self._open_job()
        for commit in manifest.commits():
            rows = json.loads(commit.tables["images"].read(self._store))
            samples = [row["index"] for row in rows if row["status"] == "quarantined"]
            if samples:
                manifest.relabel(commit.shard_id, samples, cause="retry")
        return self._carry_out(manifest)

    def _open_job(self) -> Manifest:
        store = self._store
        manifest = Manifest.open(store) if store.exists(keys.JOB) else Manifest.create(store, JOB)
        self._listed = self._setting.plan(manifest)
        return manifest

    def _carry_out(self, manifest: Manifest) -> bool:
        mine = self._mine(manifest.shards())
        for todo in manifest.todo():
            if todo.shard.shard_id in mine:
                self._take_up(manifest, todo)
        for _ in range(PASSES):
            self._seal_complete(manifest)
            if not self._open:
                break
            self._label_pass(manifest)
        self._seal_complete(manifest)
        complete = (
            mine <= manifest.generations().keys() and not mine & manifest.open_orders().keys()
        )
        if complete:
            all_of_it = mine | self._mine(self._listed)
            self._setting.watch.said_complete(self._actor.name, all_of_it, self._setting.objects)
        if self._setting.snapshots:
            self._check_snapshot(manifest)
        return complete

    def _mine(self, shards: Iterable[Shard]) -> set[str]:
        number, count = self._part
        ids = (shard.shard_id for shard in shards)
        return {one for one in ids if int(one[:16], 16) % count == number}

    def _check_snapshot(self, manifest: Manifest) -> None:
        write_snapshot(manifest, min_new_commits=1)
        for summary in manifest.summaries():
            self._setting.watch.read_summary(self._actor.name, summary)

    def _take_up(self, manifest: Manifest, todo: ShardTodo) -> None:
        """See how far earlier runs came with a shard."""
        end = None
        if todo.samples is None and todo.done_chunks:
            highest = max(todo.done_chunks)
            try:
                found, _ = read_receipt(self._store, todo.shard.shard_id, highest, todo.generation)
            except DamagedReceiptError as error:
                if isinstance(error.__cause__, MissingObjectError):  # a listing that lags
                    done = todo.done_chunks - {highest}
                    self._open[todo.shard.shard_id] = OpenShard(todo, set(done))
                else:
                    self._order_anew(manifest, todo)
                return
            end = highest if found.last else None
        self._open[todo.shard.shard_id] = OpenShard(todo, set(todo.done_chunks), end)

    def _order_anew(self, manifest: Manifest, todo: ShardTodo) -> None:
        """Order a shard whose receipts are damaged, to be labeled in the next pass."""
        shard_id = todo.shard.shard_id
        order = manifest.relabel(shard_id, None, cause="repair", above=todo.generation)
        anew = ShardTodo(todo.shard, frozenset(), order.generation)
        self._open[shard_id] = OpenShard(anew, set())

    def _seal_complete(self, manifest: Manifest) -> None:
        """Seal what is complete; a shard with a damaged receipt is ordered anew."""
        job = SealJob(self._store, SCHEMAS, JOB.spec_digest, CHUNK_SAMPLES, JsonTables())
        for shard_id, shard in list(self._open.items()):
            if not shard.is_complete(CHUNK_SAMPLES):
                continue
            try:
                commit = seal_shard(job, shard.todo, shard.sealed_chunks(CHUNK_SAMPLES))
            except DamagedReceiptError:
                self._order_anew(manifest, shard.todo)
            except (StorageError, ProtocolError):
                continue
            else:
                manifest.note_commit(shard_id, commit.generation)
                del self._open[shard_id]

    def _label_pass(self, manifest: Manifest) -> None:
        """Label what is left, each chunk by a worker, and take in the receipts."""
        found: list[Receipt | ShardTodo] = []
        for shard in self._open.values():
            self._start_chunks(shard.rest(), found)
        while any(not one.is_over and not one.is_paused for one in self._actor.children):
            self._setting.world.wait(self._actor)
            self._accept(manifest, found)
        self._accept(manifest, found)

    def _accept(self, manifest: Manifest, found: list[Receipt | ShardTodo]) -> None:
        """Take in receipts, and generations with a receipt that an attempt found damaged."""
        while found:
            one = found.pop(0)
            if isinstance(one, ShardTodo):
                shard = self._open.get(one.shard.shard_id)
                if shard is not None and shard.todo.generation == one.generation:
                    self._order_anew(manifest, one)
            elif one.shard_id in self._open:
                self._open[one.shard_id].add(one)

    def _start_chunks(self, todo: ShardTodo, found: list[Receipt | ShardTodo]) -> None:
        setting, shard_id = self._setting, todo.shard.shard_id
        num_samples = len(setting.truth.corpus.natures[shard_id])
        num_chunks = max(1, -(-num_samples // CHUNK_SAMPLES))
        for chunk in range(num_chunks):
            if todo.skips(chunk):
                continue
            start = chunk * CHUNK_SAMPLES
            stop = min(start + CHUNK_SAMPLES, num_samples)
            ordered = None if todo.samples is None else todo.samples & set(range(start, stop))
            header = ChunkHeader(
                shard_id,
                chunk,
                start,
                stop,
                chunk == num_chunks - 1,
                generation=todo.generation,
                ordered=ordered,
            )
            self._setting.start_workers(
                self._actor,
                f"{self._actor.name}/s{setting.number(shard_id)}c{chunk}",
                lambda store, header=header: self._label_chunk(store, todo, header, found),
            )

    def _label_chunk(
        self,
        store: SimulatedStore,
        todo: ShardTodo,
        header: ChunkHeader,
        found: list[Receipt | ShardTodo],
    ) -> None:
        """One attempt at a chunk, after which it has a receipt."""
        setting = self._setting
        chunk = encoded_chunk(setting.truth, store, header, setting.world.calls)
        try:
            found.append(put_chunk(store, header, *chunk))
        except DamagedReceiptError:
            found.append(todo)
