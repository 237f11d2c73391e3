"""Garbage is old and unneeded; nothing that a reader or an attempt may use is touched (I3)."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

import pytest

from sapiens_batch.errors import ProtocolError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.snapshot import write_snapshot
from sapiens_batch.storage import Store, open_store
from sapiens_batch.storage.local import LocalStore
from sapiens_batch.storage.memory import MemoryStore
from sapiens_batch.verify import check_job, collect_garbage, find_garbage
from tests.labelset.built_job import SHARDS, write_generation, write_job, write_receipt
from tests.verify.tampering import overwrite

FIRST, SECOND, OPEN = (shard.shard_id for shard in SHARDS)
LOST = "9" * 32


@pytest.fixture
def store() -> Store:
    store = MemoryStore(uuid.uuid4().hex)
    write_job(store)
    return store


def late() -> float:
    """Two days from now, so that everything is old."""
    return time.time() + 2 * 24 * 3600


def found(store: Store, **options: float) -> dict[str, str]:
    garbage = find_garbage(Manifest.open(store), **options)
    return {one.info.key: one.standing for one in garbage}


def test_what_is_younger_than_the_grace_period_stays(store: Store) -> None:
    store.create(keys.table("images", FIRST, LOST), b"lost race")
    assert found(store) == {}
    assert found(store, grace_s=-5) != {}


def test_losers_and_spent_objects_of_committed_shards_go(store: Store) -> None:
    garbage = {
        keys.table("images", FIRST, LOST): "orphan",
        keys.array_chunk("seg", FIRST, 7, 2): "orphan",
        keys.part("images", FIRST, 0, LOST): "spent",
        keys.receipt(FIRST, 0): "spent",
        keys.attempt(FIRST, 0, LOST): "spent",
        keys.attempt(FIRST, None, LOST): "spent",
    }
    for key in garbage:
        store.create(key, b"x")
    kept = found(store, now_s=late())
    assert {key: kept.pop(key) for key in garbage} == garbage
    assert all(OPEN in key for key in kept)


def test_of_an_open_shard_only_what_no_receipt_can_name_goes(store: Store) -> None:
    write_receipt(store, 2, 0)
    store.create(keys.part("images", OPEN, 0, LOST), b"lost race")
    store.create(keys.part("images", OPEN, 1, LOST), b"crashed")
    store.create(keys.attempt(OPEN, 1, LOST), b"")
    assert found(store, now_s=late()) == {
        keys.part("images", OPEN, 0, LOST): "orphan",
        keys.part("images", OPEN, 1, LOST): "in_flight",
        keys.table("images", OPEN, "e" * 32): "in_flight",
        keys.table("persons", OPEN, "e" * 32): "in_flight",
    }


def test_orders_plans_foreign_objects_and_earlier_generations_stay(store: Store) -> None:
    manifest = Manifest.open(store)
    manifest.relabel(FIRST, [4], cause="retry")
    write_generation(store, 0, 1, (1,), manifest.commit(FIRST))
    store.create("notes.txt", b"mine")
    assert all(OPEN in key for key in found(store, now_s=late()))


def test_removing_leaves_a_sound_job_with_nothing_to_remove(store: Store) -> None:
    store.create(keys.table("images", FIRST, LOST), b"lost race")
    before = check_job(Manifest.open(store))
    removed = [one.info.key for one in collect_garbage(Manifest.open(store), now_s=late())]
    assert keys.table("images", FIRST, LOST) in removed
    assert found(store, now_s=late()) == {}
    after = check_job(Manifest.open(store))
    assert (after.findings, after.counts) == (before.findings, before.counts)
    assert "orphan" not in after.orphans


def test_old_snapshots_go_and_the_newest_stays(store: Store) -> None:
    manifest = Manifest.open(store)
    old = write_snapshot(manifest, min_new_commits=1)
    write_generation(store, 2, 0, (0, 1), None)
    new = write_snapshot(manifest, min_new_commits=1)
    garbage = found(store, now_s=late())
    assert garbage[str(old)] == "snapshot"
    assert new not in garbage


def test_a_shard_whose_commit_cannot_be_read_stops_the_collection(store: Store) -> None:
    overwrite(store, keys.commit(FIRST), b"{")
    with pytest.raises(ProtocolError, match="run `verify`"):
        list(collect_garbage(Manifest.open(store), now_s=late()))


def test_a_shard_whose_receipt_cannot_be_read_is_left_alone(store: Store) -> None:
    store.create(keys.receipt(OPEN, 0), b"{")
    store.create(keys.part("images", OPEN, 0, LOST), b"x")
    assert found(store, now_s=late()) == {}


def test_what_killed_writers_left_on_a_disk_goes(tmp_path: Path) -> None:
    write_job(open_store(str(tmp_path)))
    left = tmp_path / "commits" / ".0123.partial"
    left.write_bytes(b"half a com")
    os.utime(left, (1, 1))
    store = LocalStore(tmp_path)
    assert found(store) == {"commits/.0123.partial": "unfinished"}
    list(collect_garbage(Manifest.open(store)))
    assert not left.exists()
