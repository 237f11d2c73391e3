"""Snapshots save reading commits, and are never believed over the keys of commits (I2)."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from sapiens_batch.protocol import keys
from sapiens_batch.protocol.documents import Counts, StoredObject
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.snapshot import (
    SNAPSHOT_SCHEMA,
    CommitSummary,
    Summaries,
    summarize,
    write_snapshot,
)
from sapiens_batch.records import Problem
from sapiens_batch.storage import Store
from sapiens_batch.storage.base import ObjectInfo
from sapiens_batch.storage.memory import MemoryStore
from tests.protocol.documents import shard
from tests.protocol.test_manifest import commit, job, put_commit

RICH = {
    "counts": Counts(ok=2, empty=1, quarantined=1, persons=3),
    "reasons": {"decode.truncated": 1},
    "problems": (Problem("source.truncated", "ends at byte 7"),),
    "tables": {"images": StoredObject.describe("tables/images/x", b"rows", rows=4)},
}


class CountingStore(MemoryStore):
    """Memory that remembers what was read."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.reads: list[str] = []

    def read(self, key: str) -> bytes:
        self.reads.append(key)
        return super().read(key)

    def commits_read(self) -> int:
        return sum(key.startswith(keys.COMMITS) for key in self.reads)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(uuid.uuid4().hex)


@pytest.fixture
def manifest(store: Store) -> Manifest:
    manifest = Manifest.create(store, job())
    for number in range(6):
        put_commit(store, number, **(RICH if number == 2 else {}))
    return manifest


def summaries(manifest: Manifest) -> list[CommitSummary]:
    return list(manifest.summaries())


def test_summaries_are_the_same_with_and_without_a_snapshot(
    store: CountingStore, manifest: Manifest
) -> None:
    expected = [summarize(commit(number, **(RICH if number == 2 else {}))) for number in range(6)]
    assert summaries(manifest) == sorted(expected, key=lambda one: one.shard_id)
    key = write_snapshot(manifest, min_new_commits=1)
    assert key is not None
    assert keys.parse_snapshot(key) is not None
    store.reads.clear()
    assert summaries(manifest) == sorted(expected, key=lambda one: one.shard_id)
    assert store.commits_read() == 0


def test_later_commits_are_read_beside_the_snapshot(
    store: CountingStore, manifest: Manifest
) -> None:
    write_snapshot(manifest, min_new_commits=1)
    put_commit(store, 7)
    store.create(keys.commit(shard(3).shard_id, 1), commit(3, generation=1, **RICH).to_bytes())
    store.reads.clear()
    found = {one.shard_key: one for one in summaries(manifest)}
    assert store.commits_read() == 2
    assert found["00003.tar"].counts == RICH["counts"]
    assert (found["00003.tar"].generation, found["00007.tar"].generation) == (1, 0)


def test_a_shard_in_a_snapshot_without_a_commit_is_not_visible(
    store: CountingStore, manifest: Manifest
) -> None:
    write_snapshot(manifest, min_new_commits=1)
    store.delete(keys.commit(shard(0).shard_id))
    assert "00000.tar" not in {one.shard_key for one in summaries(manifest)}


def test_a_damaged_or_deleted_snapshot_is_passed_over(
    store: CountingStore, manifest: Manifest
) -> None:
    expected = summaries(manifest)
    key = write_snapshot(manifest, min_new_commits=1)
    assert key is not None
    data = store.read(key)
    store.delete(key)
    store.create(key, data[:-9] + b"x" + data[-8:])
    assert summaries(manifest) == expected
    store.delete(key)
    assert summaries(manifest) == expected


def test_bytes_that_are_no_snapshot_but_named_by_their_digest_are_passed_over(
    store: CountingStore, manifest: Manifest
) -> None:
    expected = summaries(manifest)
    key = write_snapshot(manifest, min_new_commits=1)
    assert key is not None
    whole = store.read(key)
    start = 4  # of the first page, whose header is destroyed
    for damaged in (b"junk", whole[:-9], whole[:start] + b"\xff" * 64 + whole[start + 64 :]):
        name = keys.snapshot(99, hashlib.sha256(damaged).hexdigest())
        store.create(name, damaged)
        store.reads.clear()
        assert summaries(manifest) == expected
        assert name in store.reads
        assert store.commits_read() == 0, "the next snapshot was not used"
        store.delete(name)


def test_a_snapshot_is_written_when_enough_commits_are_in_none(manifest: Manifest) -> None:
    assert write_snapshot(manifest, min_new_commits=7) is None
    assert write_snapshot(manifest, min_new_commits=6) is not None
    assert write_snapshot(manifest, min_new_commits=1) is None


def test_the_same_commits_give_the_same_bytes_however_they_were_read() -> None:
    row = {"generation": 0, "num_samples": 1, "reasons": "{}", "problems": "[]", "tables": []}
    counts = dict.fromkeys(Counts.model_fields, 1)
    rows = [
        {"shard_id": shard(n).shard_id, "shard_key": f"{n}".zfill(900), **row, **counts}
        for n in range(5000)  # enough for several pages
    ]
    table = pa.Table.from_pylist(rows, SNAPSHOT_SCHEMA).sort_by("shard_id")
    parts = pa.Table.from_batches(table.to_batches(max_chunksize=700))
    assert Summaries(parts).to_parquet() == Summaries(table).to_parquet()


def test_a_snapshot_that_vanishes_while_it_is_opened_costs_nothing(manifest: Manifest) -> None:
    key = write_snapshot(manifest, min_new_commits=1)
    assert key is not None

    class VanishingStore(MemoryStore):
        def list(self, prefix: str) -> Iterator[ObjectInfo]:
            if prefix == keys.SNAPSHOTS:
                return iter([ObjectInfo(keys.snapshot(9, "0" * 64), 1)])
            return super().list(prefix)

    name = manifest.store.uri.removeprefix("memory://")
    assert len(summaries(Manifest(VanishingStore(name), manifest.job))) == 6
