"""What can happen to a job, in any order, against a model of a few lines; checked after each step.

In one process and in memory: stages are called as Ray would call them, a crash is an exception at a
fault point, a race is two drivers that saw the same todo list. What Ray and real processes add is
covered by the matrix.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from sapiens_batch import failpoints as faults
from sapiens_batch.driver.retry import order_retry
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.open_shard import OpenShard
from sapiens_batch.protocol.plan import write_plan
from sapiens_batch.protocol.seal import seal_shard
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.records import Shard
from sapiens_batch.sinks import label_schema as schema_json
from sapiens_batch.sinks import parquet, zarr
from sapiens_batch.spec.loading import parse_spec
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.flow import LabeledChunk
from sapiens_batch.stages.join import join_chunks
from sapiens_batch.stages.write import ChunkWriter
from sapiens_batch.storage.memory import MemoryStore
from sapiens_batch.verify import check_job, collect_garbage
from tests.late_store import LateStore
from tests.small_tasks import CHUNK_SAMPLES, SCHEMAS, SEG, labeled_chunk

SHARDS = (3, CHUNK_SAMPLES + 2, 0)
"""Samples of each shard: part of a chunk, two chunks, none."""

CRASHES = (
    "before-data",
    "mid-arrays",
    "after-arrays",
    "before-receipt",
    "receipt-response",
    "after-receipt",
    "before-seal",
    "during-seal",
    "before-commit",
    "commit-response",
    "after-commit",
)
DIGEST = "0" * 64
names = itertools.count()


def shard(number: int) -> Shard:
    return Shard(f"{number + 1:032x}", f"{number:03}.tar", f"file:///{number:03}.tar", "1", 1)


class JobStates(RuleBasedStateMachine):
    """A job, and what its rows must be.

    The model: which samples are mended, so that labeling them succeeds, and for every visible shard
    the status of its rows when it was labeled last.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="states-")
        self.patch = pytest.MonkeyPatch()
        self.patch.setenv(faults.FAULTS_VARIABLE, self.folder.name)
        self.store = MemoryStore(f"states-{next(names)}")
        spec = parse_spec(
            {
                "name": "states",
                "source": {"format": "webdataset", "uri": "in.tar"},
                "tasks": {name: {"checkpoint": "demo"} for name in SCHEMAS},
                "output": {"uri": self.store.uri, "chunk_samples": CHUNK_SAMPLES},
            }
        )
        self.context = JobContext(spec, {}, SCHEMAS, {}, True, DIGEST, self.store)
        self.mended: set[tuple[str, int]] = set()
        self.seen: list[ShardTodo] = []
        self.commits: dict[str, bytes] = {}

    def teardown(self) -> None:
        self.patch.undo()
        self.folder.cleanup()

    @initialize()
    def plan(self) -> None:
        document = JobDocument(
            name="states",
            spec={},
            spec_digest=DIGEST,
            schemas=tuple(schema_json.to_json(one) for one in SCHEMAS.values()),
            capabilities=asdict(self.store.probe()),
        )
        self.manifest = Manifest.create(self.store, document)
        write_plan(self.store, [shard(number) for number in range(len(SHARDS))])

    @rule()
    def look(self) -> None:
        """A driver makes its todo list; what it does with it may come much later."""
        self.seen = self.manifest.todo()

    @rule(
        crash=st.sampled_from((None, *CRASHES)),
        pick=st.integers(0, 10),
        chunk=st.integers(0, 1),
    )
    @precondition(lambda self: bool(self.seen))
    def label(self, crash: str | None, pick: int, chunk: int) -> None:
        """A worker labels and writes one chunk of an old or new todo list."""
        todo = self.seen[pick % len(self.seen)]
        with self.crashing(crash):
            ChunkWriter(self.store, SCHEMAS, [], CHUNK_SAMPLES).write(self.chunk(todo, chunk))

    @rule(crash=st.sampled_from((None, *CRASHES)), pick=st.integers(0, 10))
    @precondition(lambda self: bool(self.seen))
    def seal(self, crash: str | None, pick: int) -> None:
        """A driver seals a shard of its list if the receipts suffice, whoever wrote them."""
        todo = self.seen[pick % len(self.seen)]
        receipts = self.manifest.receipts(todo.shard.shard_id, todo.generation)
        shard = OpenShard(todo, set())
        for receipt in receipts:
            shard.add(receipt)
        if shard.is_complete(CHUNK_SAMPLES):
            with self.crashing(crash):
                seal_shard(self.context.seal_job, todo, shard.sealed_chunks(CHUNK_SAMPLES))

    @rule()
    def finish(self) -> None:
        """A driver does all that is left, undisturbed."""
        for _ in range(5):
            todo = self.manifest.todo()
            for item in todo:
                self.finish_shard(item)
            if not todo:
                break
        assert self.manifest.todo() == []

    @rule(number=st.integers(0, 1), position=st.integers(0, CHUNK_SAMPLES + 1))
    def mend(self, number: int, position: int) -> None:
        """What kept a sample from being labeled goes away."""
        if position < SHARDS[number]:
            self.mended.add((shard(number).shard_id, position))

    @rule(pick=st.integers(0, 10))
    @precondition(lambda self: bool(self.seen))
    def mend_between_attempts(self, pick: int) -> None:
        """An attempt dies after its arrays; the next one can label a sample more than they hold."""
        self.label("after-arrays", pick, 0)
        self.mended.add((self.seen[pick % len(self.seen)].shard.shard_id, 1))
        self.label(None, pick, 0)

    @rule()
    def retry(self) -> None:
        """Somebody orders the quarantined samples to be labeled again."""
        order_retry(self.manifest, reasons=["decode"])

    @rule(number=st.integers(0, 1), kind=st.sampled_from(("images", "seg")))
    def lose(self, number: int, kind: str) -> None:
        """An object that a commit names vanishes; `verify` finds it, and a repair is ordered."""
        found = self.newest().get(shard(number).shard_id)
        if found is None:
            return
        if kind == "seg" and "seg" not in found.arrays:
            return
        stored = found.tables["images"] if kind == "images" else found.arrays["seg"].chunks[0]
        self.store.delete(stored.key)
        assert check_job(self.manifest).damaged
        self.manifest.relabel(found.shard_id, None, cause="repair")
        self.seen = []
        self.finish()

    @rule()
    def gc(self) -> None:
        """Orphans go, days after whoever was at work."""
        list(collect_garbage(Manifest(LateStore(self.store.name), self.manifest.job)))
        self.seen = []

    @invariant()
    def storage_keeps_the_invariants(self) -> None:
        if not hasattr(self, "manifest"):
            return
        report = check_job(self.manifest)
        assert not report.damaged, report.findings

    @invariant()
    def commits_never_change(self) -> None:
        stored = {info.key: self.store.read(info.key) for info in self.store.list(keys.COMMITS)}
        assert self.commits.items() <= stored.items()
        self.commits = stored

    @invariant()
    def visible_rows_are_those_of_the_model(self) -> None:
        for commit in self.newest().values():
            number = int(commit.shard_id, 16) - 1
            rows = parquet.decode(self.store.read(commit.tables["images"].key)).to_pylist()
            assert [row["index"] for row in rows] == list(range(SHARDS[number]))
            for row in rows:
                mended = (commit.shard_id, row["index"]) in self.mended
                sound = row["index"] % 3 != 1
                assert row["status"] != "quarantined" or not sound
                assert row["status"] == "quarantined" or sound or mended

    @invariant()
    def arrays_hold_what_rows_name_and_nothing_else(self) -> None:
        for commit in self.newest().values():
            rows = parquet.decode(self.store.read(commit.tables["images"].key)).to_pylist()
            found: dict[int, int] = {}
            for info in self.store.list(f"{commit.arrays['seg'].root}/c/" if rows else "none/"):
                name = keys.parse(info.key)
                assert name is not None and name.chunk is not None
                first = name.chunk * CHUNK_SAMPLES
                assert SEG.array is not None
                data = self.store.read(info.key)
                for row, values in zarr.decode_rows(SEG.array, data, CHUNK_SAMPLES):
                    found[first + row] = int(values.max())
            named = {row["seg_row"] for row in rows if row["seg_row"] is not None}
            assert found == {row: row for row in named}
            roots = {row["seg_array"] for row in rows if row["seg_row"] is not None}
            assert roots <= {array.root for array in commit.arrays.values()}

    def newest(self) -> dict[str, Commit]:
        if not hasattr(self, "manifest"):
            return {}
        return {commit.shard_id: commit for commit in self.manifest.commits()}

    def finish_shard(self, todo: ShardTodo) -> None:
        size = SHARDS[int(todo.shard.shard_id, 16) - 1]
        writer = ChunkWriter(self.store, SCHEMAS, [], CHUNK_SAMPLES)
        shard = OpenShard(todo, set(todo.done_chunks))
        for chunk in range(max(1, -(-size // CHUNK_SAMPLES))):
            if chunk not in todo.done_chunks:
                shard.add(writer.write(self.chunk(todo, chunk)))
        seal_shard(self.context.seal_job, todo, shard.sealed_chunks(CHUNK_SAMPLES))

    def chunk(self, todo: ShardTodo, wanted: int) -> LabeledChunk:
        """A labeled chunk; every third sample is broken until it is mended."""
        shard_id = todo.shard.shard_id
        size = SHARDS[int(shard_id, 16) - 1]
        num_chunks = max(1, -(-size // CHUNK_SAMPLES))
        index = wanted % num_chunks
        start = index * CHUNK_SAMPLES
        stop = min(size, start + CHUNK_SAMPLES)
        samples = range(start, stop)
        if todo.samples is not None:
            samples = sorted(todo.samples & set(samples))
        parts = []
        for sample in samples:
            broken = sample % 3 == 1 and (shard_id, sample) not in self.mended
            parts.append(labeled_chunk([None if broken else 1], first=sample))
        whole = labeled_chunk([], index=index)
        header = replace(
            whole.header,
            shard_id=shard_id,
            start=start,
            stop=stop,
            last=index == num_chunks - 1,
            generation=todo.generation,
            ordered=None if todo.samples is None else frozenset(samples),
        )
        return join_chunks(header, SCHEMAS, parts)

    @contextmanager
    def crashing(self, point: str | None) -> Iterator[None]:
        """End what is in the block at a point, if it gets there."""
        folder = Path(self.folder.name)
        if point is not None:
            faults.arm(folder, point, "raise")
        try:
            yield
        except faults.InjectedFaultError:
            pass
        finally:
            if point is not None:
                (folder / point).unlink(missing_ok=True)


TestJobStates = JobStates.TestCase
TestJobStates.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
