"""Garbage is old and unneeded; nothing that a reader or an attempt may use is touched (I3)."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from sapiens_batch.errors import ProtocolError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.snapshot import write_snapshot
from sapiens_batch.storage import Store, open_store
from sapiens_batch.storage.base import ObjectInfo
from sapiens_batch.storage.local import LocalStore
from sapiens_batch.storage.memory import MemoryStore
from sapiens_batch.verify import check_job, collect_garbage, find_garbage
from tests.labelset.built_job import SHARDS, write_generation, write_job, write_receipt
from tests.late_store import LateStore
from tests.verify.tampering import overwrite

FIRST, SECOND, OPEN = (shard.shard_id for shard in SHARDS)
LOST = "9" * 32


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore(uuid.uuid4().hex)
    write_job(store)
    return store


@pytest.fixture
def late(store: MemoryStore) -> LateStore:
    """The same job two days later."""
    return LateStore(store.name)


def found(store: Store, **options: float) -> dict[str, str]:
    garbage = find_garbage(Manifest.open(store), **options)
    return {one.info.key: one.standing for one in garbage}


def test_what_is_younger_than_the_grace_period_stays(store: MemoryStore, late: LateStore) -> None:
    store.create(keys.table("images", FIRST, LOST), b"lost race")
    assert found(store) == {}
    assert found(late, grace_s=3 * 24 * 3600.0) == {}
    assert found(late) != {}


def test_age_is_told_by_the_clock_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine whose clock is a day ahead would remove what a seal under way wrote."""
    store = LocalStore(tmp_path)
    write_job(store)
    store.create(keys.table("images", OPEN, LOST), b"about to be committed")
    ahead_s = time.time() + 25 * 3600
    monkeypatch.setattr(time, "time", lambda: ahead_s)
    assert found(store) == {}


def test_no_grace_is_given_up_while_a_job_is_open(store: Store) -> None:
    lost = keys.table("images", FIRST, LOST)
    store.create(lost, b"lost race")
    time.sleep(0.01)
    assert found(store, grace_s=0.0) == {}
    write_generation(store, 2, 0, (0, 1), None)
    assert lost in found(store, grace_s=0.0)
    Manifest.open(store).relabel(FIRST, [4], cause="retry")
    assert found(store, grace_s=0.0) == {}


def test_losers_and_spent_objects_of_committed_shards_go(late: LateStore) -> None:
    garbage = {
        keys.table("images", FIRST, LOST): "orphan",
        keys.array_chunk(keys.array("seg", FIRST), 7, 2): "orphan",
        keys.array_document(keys.array("seg", FIRST, write_id=LOST)): "orphan",
        keys.receipt(FIRST, 0): "spent",
    }
    for key in garbage:
        late.create(key, b"x")
    kept = found(late)
    assert {key: kept.pop(key) for key in garbage} == garbage
    assert all(OPEN in key for key in kept)


def test_of_an_open_shard_only_what_nothing_can_name_goes(late: LateStore) -> None:
    write_receipt(late, 2, 0)
    own = keys.array("seg", OPEN, write_id=LOST)
    late.create(keys.array_chunk(own, 1, 2), b"crashed")
    late.create(keys.array_chunk(keys.array("seg", OPEN), 5, 2), b"the name is shared")
    assert found(late) == {
        keys.array_chunk(own, 1, 2): "in_flight",
        keys.table("images", OPEN, "e" * 32): "in_flight",
        keys.table("persons", OPEN, "e" * 32): "in_flight",
    }


def test_what_a_commit_or_receipt_names_that_no_listing_shows_stays(store: MemoryStore) -> None:
    """A listing may lag behind what was written (I9)."""
    receipt = write_receipt(store, 2, 1)
    root = keys.array("seg", OPEN, write_id=LOST)
    moved = receipt.arrays["seg"].model_copy(update={"key": keys.array_chunk(root, 0, 2)})
    store.create(moved.key, store.read(receipt.arrays["seg"].key))
    unlisted = receipt.model_copy(
        update={"chunk": 0, "start": 0, "stop": 2, "last": False, "arrays": {"seg": moved}}
    )
    sections = {"images": b"rows of images", "persons": b"rows of persons"}
    store.create(keys.receipt(OPEN, 0), unlisted.pack(sections))
    second = write_generation(store, 1, 1, (0, 1), None)
    write_generation(store, 1, 2, (0, 1), None)

    class LaggingStore(LateStore):
        def list(self, prefix: str) -> Iterator[ObjectInfo]:
            late = (keys.COMMITS, keys.RECEIPTS, keys.RELABEL)
            return (one for one in super().list(prefix) if not one.key.startswith(late))

    removed = found(LaggingStore(store.name))
    assert moved.key not in removed
    for commit in (second, Manifest.open(store).commit(FIRST)):
        assert not {one.key for one in commit.tables.values()} & removed.keys()
    assert set(removed) == {keys.table(name, OPEN, "e" * 32) for name in ("images", "persons")}


def test_orders_plans_foreign_objects_and_earlier_generations_stay(late: LateStore) -> None:
    manifest = Manifest.open(late)
    manifest.relabel(FIRST, [4], cause="retry")
    write_generation(late, 0, 1, (1,), manifest.commit(FIRST))
    late.create("notes.txt", b"mine")
    assert all(OPEN in key for key in found(late))


def test_removing_leaves_a_sound_job_with_nothing_to_remove(late: LateStore) -> None:
    late.create(keys.table("images", FIRST, LOST), b"lost race")
    before = check_job(Manifest.open(late))
    removed = [one.info.key for one in collect_garbage(Manifest.open(late))]
    assert keys.table("images", FIRST, LOST) in removed
    assert found(late) == {}
    after = check_job(Manifest.open(late))
    assert (after.findings, after.counts) == (before.findings, before.counts)
    assert "orphan" not in after.orphans


def test_old_snapshots_go_and_the_newest_stays(late: LateStore) -> None:
    manifest = Manifest.open(late)
    old = write_snapshot(manifest, min_new_commits=1)
    write_generation(late, 2, 0, (0, 1), None)
    new = write_snapshot(manifest, min_new_commits=1)
    garbage = found(late)
    assert garbage[str(old)] == "snapshot"
    assert new not in garbage


def test_a_shard_whose_commit_cannot_be_read_stops_the_collection(late: LateStore) -> None:
    overwrite(late, keys.commit(FIRST), b"{")
    with pytest.raises(ProtocolError, match="run `verify`"):
        list(collect_garbage(Manifest.open(late)))


def test_a_shard_whose_receipt_cannot_be_read_is_left_alone(late: LateStore) -> None:
    late.create(keys.receipt(OPEN, 0), b"{")
    late.create(keys.array_chunk(keys.array("seg", OPEN, write_id=LOST), 0, 2), b"x")
    assert found(late) == {}


def test_what_killed_writers_left_on_a_disk_goes(tmp_path: Path) -> None:
    write_job(open_store(str(tmp_path)))
    left = tmp_path / "commits" / ".0123.partial"
    left.write_bytes(b"half a com")
    os.utime(left, (1, 1))
    store = LocalStore(tmp_path)
    assert found(store) == {"commits/.0123.partial": "unfinished"}
    list(collect_garbage(Manifest.open(store)))
    assert not left.exists()
