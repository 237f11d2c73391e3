"""What a listing does not show yet is neither lost nor done twice (I9)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from sapiens_batch.protocol import keys
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.plan import write_plan
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.storage.base import ObjectInfo
from sapiens_batch.storage.memory import MemoryStore
from tests.protocol.documents import shard
from tests.protocol.test_manifest import commit, job, put_commit

ID = shard(0).shard_id
TILES = ((0, 4, "e" * 32), (4, 8, "e" * 32))


class LaggingStore(MemoryStore):
    """Memory whose listings show nothing that was written since it was opened."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._shown = {info.key for info in super().list("")}

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return (info for info in super().list(prefix) if info.key in self._shown)


@pytest.fixture
def store() -> MemoryStore:
    """A job of two shards, the first of them committed."""
    store = MemoryStore(uuid.uuid4().hex)
    Manifest.create(store, job())
    write_plan(store, [shard(0), shard(1)])
    put_commit(store, 0, num_samples=8, counts={"ok": 8}, chunks=TILES)
    return store


@pytest.fixture
def manifest(store: MemoryStore) -> Manifest:
    return Manifest.open(LaggingStore(store.name))


def put_generation(store: MemoryStore, generation: int) -> None:
    again = commit(0, num_samples=8, counts={"ok": 8}, chunks=TILES, generation=generation)
    store.create(keys.commit(ID, generation), again.to_bytes())


def test_a_commit_that_this_process_made_counts_at_once(
    store: MemoryStore, manifest: Manifest
) -> None:
    put_commit(store, 1)
    assert shard(1).shard_id not in manifest.generations()
    manifest.note_commit(shard(1).shard_id, 0)
    assert manifest.generations() == {ID: 0, shard(1).shard_id: 0}
    assert manifest.todo() == []
    assert len(list(manifest.summaries())) == 2


def test_an_order_that_this_process_gave_is_carried_out(manifest: Manifest) -> None:
    manifest.relabel(ID, [5], cause="retry")
    assert manifest.todo()[0] == ShardTodo(shard(0), frozenset({0}), 1, frozenset({5}))


def test_an_order_of_another_process_takes_no_number_twice(
    store: MemoryStore, manifest: Manifest
) -> None:
    other = Manifest.open(store).relabel(ID, [5], cause="retry")
    assert manifest.relabel(ID, [5], cause="retry") == other
    assert manifest.relabel(ID, [0], cause="retry").generation == 2


def test_orders_before_one_that_is_listed_are_not_passed_by(
    store: MemoryStore, manifest: Manifest
) -> None:
    Manifest.open(store).relabel(ID, [5], cause="retry")
    assert manifest.relabel(ID, [0], cause="retry").generation == 2
    carried_out = manifest.open_orders()[ID]
    assert (carried_out.generation, carried_out.samples) == (2, (0, 5))


def test_an_order_that_is_carried_out_is_closed_though_no_listing_shows_it(
    store: MemoryStore,
) -> None:
    Manifest.open(store).relabel(ID, [5], cause="retry")
    manifest = Manifest.open(LaggingStore(store.name))
    put_generation(store, 1)
    assert manifest.open_orders() == {}
    assert manifest.newest_generation(ID) == 1


def test_an_order_builds_on_a_commit_that_no_listing_shows(
    store: MemoryStore, manifest: Manifest
) -> None:
    put_commit(store, 1, num_samples=8, counts={"ok": 8}, chunks=TILES)
    manifest.relabel(shard(1).shard_id, [1], cause="retry")
    assert manifest.todo() == [ShardTodo(shard(1), frozenset({1}), 1, frozenset({1}))]
