"""Orders to label again, and what they leave to do (I2, I6)."""

from __future__ import annotations

import json
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from sapiens_batch.errors import ProtocolError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.orders import RelabelOrder, choose
from sapiens_batch.protocol.plan import write_plan
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.storage import Store
from sapiens_batch.storage.memory import MemoryStore
from tests.protocol.documents import receipt, shard
from tests.protocol.test_manifest import commit, job, put_commit
from tests.sealed import sealed

ID = shard(0).shard_id
TILES = ((0, 4, "e" * 32), (4, 8, "e" * 32), (8, 9, "e" * 32))


@pytest.fixture
def store() -> Store:
    return MemoryStore(uuid.uuid4().hex)


@pytest.fixture
def manifest(store: Store) -> Manifest:
    """Two shards, the first of them committed with nine samples in chunks of four."""
    manifest = Manifest.create(store, job())
    write_plan(store, [shard(0), shard(1)])
    put_commit(store, 0, num_samples=9, chunks=TILES)
    return manifest


def put_generation(store: Store, generation: int) -> None:
    document = commit(0, num_samples=9, chunks=TILES, generation=generation)
    store.create(keys.commit(ID, generation), document.to_bytes())


def order(generation: int, samples: tuple[int, ...] | None) -> RelabelOrder:
    return RelabelOrder(
        shard_id=ID,
        generation=generation,
        cause="retry",
        samples=samples,
        write_id="f" * 32,
        created="2026-01-01T00:00:00+00:00",
    )


def test_an_order_is_to_do_and_skips_chunks_without_an_ordered_sample(manifest: Manifest) -> None:
    made = manifest.relabel(ID, [5, 8, 5], cause="retry", message="crash")
    assert (made.generation, made.samples) == (1, (5, 8))
    assert manifest.todo() == [
        ShardTodo(shard(0), frozenset({0}), 1, frozenset({5, 8})),
        ShardTodo(shard(1), frozenset()),
    ]


def test_receipts_count_for_their_own_generation_only(store: Store, manifest: Manifest) -> None:
    manifest.relabel(ID, [5, 8], cause="retry")
    for generation, chunk in ((0, 1), (1, 2)):
        one = receipt(chunk, chunk * 4, chunk * 4 + 1, last=chunk == 2, shard_id=ID)
        key = keys.receipt(ID, chunk, generation)
        store.create(key, one.model_copy(update={"generation": generation}).pack({}))
    assert manifest.todo()[0].done_chunks == frozenset({0, 2})
    assert [one.chunk for one in manifest.receipts(ID, 1)] == [2]


def test_a_carried_out_order_is_closed_and_its_commit_is_the_newest(
    store: Store, manifest: Manifest
) -> None:
    manifest.relabel(ID, [5], cause="retry")
    put_generation(store, 1)
    assert [one.shard for one in manifest.todo()] == [shard(1)]
    assert manifest.commit(ID).generation == 1
    assert manifest.commit(ID, 0).generation == 0
    assert [one.generation for one in manifest.commits()] == [1]
    assert manifest.generations() == {ID: 1}


def test_the_same_samples_are_ordered_once_and_others_with_them(manifest: Manifest) -> None:
    first = manifest.relabel(ID, [5, 8], cause="retry")
    assert manifest.relabel(ID, [8], cause="retry") == first
    second = manifest.relabel(ID, [0], cause="retry")
    assert second.generation == 2
    # the first alone might build on what the second says is damaged
    assert manifest.open_orders() == {ID: second.model_copy(update={"samples": (0, 5, 8)})}


def test_an_order_of_all_samples_comes_first_and_closes_the_others(
    store: Store, manifest: Manifest
) -> None:
    manifest.relabel(ID, [5], cause="retry")
    whole = manifest.relabel(ID, None, cause="repair")
    assert manifest.open_orders() == {ID: whole}
    assert manifest.todo()[0] == ShardTodo(shard(0), frozenset(), 2, None)
    put_generation(store, 2)
    assert manifest.open_orders() == {}


def test_a_shard_without_a_commit_may_start_over(manifest: Manifest) -> None:
    manifest.relabel(shard(1).shard_id, None, cause="repair")
    assert manifest.todo() == [ShardTodo(shard(1), frozenset(), 1, None)]


def test_racing_orders_get_numbers_of_their_own(manifest: Manifest) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: manifest.relabel(ID, [n], cause="retry"), range(8)))
    assert sorted(one.generation for one in made) == list(range(1, 9))


def test_a_damaged_order_is_taken_for_one_of_all_samples(store: Store, manifest: Manifest) -> None:
    store.create(keys.relabel_order(ID, 1), b"{")
    assert manifest.todo()[0] == ShardTodo(shard(0), frozenset(), 1, None)


def test_an_order_whose_own_generation_is_damaged_mends_nothing(manifest: Manifest) -> None:
    first = manifest.relabel(ID, None, cause="repair")
    assert manifest.relabel(ID, None, cause="repair") == first
    assert manifest.relabel(ID, None, cause="repair", above=1).generation == 2


def test_an_order_is_never_closed_when_it_is_made(store: Store, manifest: Manifest) -> None:
    manifest.relabel(ID, [5], cause="retry")
    put_generation(store, manifest.relabel(ID, [6], cause="retry").generation)
    store.delete(keys.relabel_order(ID, 1))  # lost, so that counting up from it would end at once
    made = Manifest.open(store).relabel(ID, [5], cause="repair")
    assert made.generation == 3
    assert Manifest.open(store).open_orders() == {ID: made}


def test_samples_of_an_order_are_sorted() -> None:
    data = sealed({**json.loads(order(1, (1, 2)).to_bytes()), "samples": [2, 1]})
    with pytest.raises(ProtocolError, match="samples are not sorted"):
        RelabelOrder.from_bytes(data, "k")


def test_an_order_covers_what_it_labels_again() -> None:
    assert order(1, (1, 2, 3)).covers([3, 1])
    assert not order(1, (1, 2, 3)).covers([4])
    assert not order(1, (1, 2, 3)).covers(None)
    assert order(1, None).covers(None)
    assert order(1, None).covers([9])


def test_orders_are_carried_out_at_once_unless_one_is_of_all_samples() -> None:
    assert choose([]) is None
    assert choose([order(3, (1, 4)), order(2, (2, 4))]) == order(3, (1, 2, 4))
    assert choose([order(2, None), order(3, (1,)), order(4, None)]) == order(4, None)
