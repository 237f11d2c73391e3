"""Damage is healed by labeling again as a later generation; commits stay as they are (I2, I6)."""

from __future__ import annotations

import uuid

import numpy as np
import pytest

from sapiens_batch.errors import ProtocolError
from sapiens_batch.labelset import LabelSet
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.open_shard import OpenShard
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.storage import Store
from sapiens_batch.storage.memory import MemoryStore
from sapiens_batch.verify import check_job, order_repairs
from tests.labelset.built_job import SHARDS, seg_row, write_generation, write_job, write_receipt
from tests.verify.tampering import overwrite

FIRST, SECOND, OPEN = (shard.shard_id for shard in SHARDS)


@pytest.fixture
def manifest() -> Manifest:
    store = MemoryStore(uuid.uuid4().hex)
    write_job(store)
    return Manifest.open(store)


def flip(store: Store, key: str) -> None:
    data = bytearray(store.read(key))
    data[len(data) // 2] ^= 1
    overwrite(store, key, data)


def order(manifest: Manifest) -> ShardTodo:
    """Order repairs; what is to do for the one damaged shard."""
    orders, beyond = order_repairs(manifest, check_job(manifest))
    assert len(orders) == 1
    assert beyond == []
    (todo,) = (one for one in manifest.todo() if one.generation)
    assert todo.shard.shard_id == orders[0].shard_id
    return todo


def carry_out(manifest: Manifest, todo: ShardTodo) -> None:
    """Do what a run does with an order, with the labels of the built job."""
    number = SHARDS.index(todo.shard)
    base = None if todo.samples is None else manifest.commit(todo.shard.shard_id)
    chunks = tuple(chunk for chunk in (0, 1) if chunk not in todo.done_chunks)
    write_generation(manifest.store, number, todo.generation, chunks, base)


def test_a_damaged_array_object_orders_the_samples_of_its_chunk(manifest: Manifest) -> None:
    before = manifest.commit(FIRST)
    flip(manifest.store, before.arrays["seg"].chunks[1].key)
    todo = order(manifest)
    assert todo == ShardTodo(SHARDS[0], frozenset({0}), 1, frozenset({4, 5}))
    carry_out(manifest, todo)
    report = check_job(manifest)
    assert not report.damaged
    assert report.open_orders == 0
    after = manifest.commit(FIRST)
    assert after.arrays["seg"].root != before.arrays["seg"].root
    assert manifest.commit(FIRST, 0) == before
    labels = LabelSet(manifest)
    for index in (0, 5):
        np.testing.assert_array_equal(labels.array("seg")[FIRST, index], seg_row(0, index))
    assert labels.images.count_rows() == 12


def test_a_damaged_table_orders_the_whole_shard(manifest: Manifest) -> None:
    flip(manifest.store, manifest.commit(SECOND).tables["persons"].key)
    todo = order(manifest)
    assert todo == ShardTodo(SHARDS[1], frozenset(), 1, None)
    carry_out(manifest, todo)
    assert not check_job(manifest).damaged


def test_damaged_array_metadata_is_written_anew_without_labeling(manifest: Manifest) -> None:
    flip(manifest.store, manifest.commit(FIRST).arrays["normal"].metadata.key)
    todo = order(manifest)
    assert todo == ShardTodo(SHARDS[0], frozenset({0, 1}), 1, frozenset())
    assert OpenShard(todo, set()).is_complete(4)
    carry_out(manifest, todo)
    assert not check_job(manifest).damaged


def test_a_damaged_commit_orders_the_whole_shard_and_is_never_read_again(
    manifest: Manifest,
) -> None:
    overwrite(manifest.store, keys.commit(FIRST), b"{")
    todo = order(manifest)
    assert todo.samples is None
    carry_out(manifest, todo)
    assert not check_job(manifest).damaged
    assert LabelSet(manifest).images.count_rows() == 12


def test_an_open_shard_that_lost_an_object_starts_over(manifest: Manifest) -> None:
    receipt = write_receipt(manifest.store, 2, 0)
    manifest.store.delete(receipt.arrays["seg"].key)
    todo = order(manifest)
    assert todo == ShardTodo(SHARDS[2], frozenset(), 1, None)
    carry_out(manifest, todo)
    report = check_job(manifest)
    assert not report.damaged
    assert report.missing_shards == ()


def test_ordering_the_same_repair_again_changes_nothing(manifest: Manifest) -> None:
    flip(manifest.store, manifest.commit(FIRST).arrays["seg"].chunks[1].key)
    report = check_job(manifest)
    assert order_repairs(manifest, report) == order_repairs(manifest, report)
    assert [info.key for info in manifest.store.list(keys.RELABEL)] == [
        keys.relabel_order(FIRST, 1)
    ]


def test_damage_that_labeling_cannot_mend_is_handed_back(manifest: Manifest) -> None:
    (plan,) = manifest.plans()
    flip(manifest.store, keys.plan_table(0, plan.write_id))
    orders, beyond = order_repairs(manifest, check_job(manifest))
    assert orders == []
    assert [finding.key for finding in beyond] == [keys.PLAN]


def test_a_damaged_repair_can_itself_be_repaired(manifest: Manifest) -> None:
    flip(manifest.store, manifest.commit(FIRST).arrays["seg"].chunks[1].key)
    carry_out(manifest, order(manifest))
    flip(manifest.store, manifest.commit(FIRST).tables["images"].key)
    todo = order(manifest)
    assert (todo.generation, todo.samples) == (2, None)
    carry_out(manifest, todo)
    assert not check_job(manifest).damaged
    with pytest.raises(ProtocolError, match="names generation"):
        overwrite(manifest.store, keys.commit(FIRST, 3), manifest.store.read(keys.commit(FIRST, 2)))
        manifest.commit(FIRST)
