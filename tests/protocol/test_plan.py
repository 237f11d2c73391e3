"""Plans: written once, completed after a crash, compared with the input (I4, I6)."""

from __future__ import annotations

import uuid

import pytest

from sapiens_batch.errors import ProtocolError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.plan import PlanDrift, compare, list_plans, read_plan, write_plan
from sapiens_batch.storage import Store
from sapiens_batch.storage.memory import MemoryStore
from tests.protocol.documents import shard
from tests.verify.tampering import overwrite


@pytest.fixture
def store() -> Store:
    return MemoryStore(uuid.uuid4().hex)


def test_a_plan_reads_back_in_order(store: Store) -> None:
    shards = [shard(2), shard(0), shard(1, members=("a/é.jpg", "b.png"))]
    document = write_plan(store, iter(shards), source=["s3://bucket/*.tar"])
    assert (document.number, document.num_shards, document.size_bytes) == (0, 3, 300)
    assert document.source == ("s3://bucket/*.tar",)
    assert list(read_plan(store, document)) == shards
    assert list_plans(store) == [document]


def test_a_long_plan_is_streamed(store: Store) -> None:
    document = write_plan(store, (shard(number) for number in range(10_000)))
    assert document.num_shards == 10_000
    assert [one.key for one in read_plan(store, document)][9_999] == "09999.tar"


def test_a_plan_may_be_empty(store: Store) -> None:
    document = write_plan(store, [])
    assert document.num_shards == 0
    assert list(read_plan(store, document)) == []


def test_the_first_of_two_planners_is_kept(store: Store) -> None:
    first = write_plan(store, [shard(0)])
    second = write_plan(store, [shard(0), shard(1)])
    assert second == first
    assert list(read_plan(store, second)) == [shard(0)]


def test_a_table_without_a_document_counts_for_nothing_whatever_is_in_it(store: Store) -> None:
    document = write_plan(store, [shard(0)])
    store.delete("plan/0000.json")
    overwrite(store, keys.plan_table(0, document.write_id), b"PAR1")
    assert list_plans(store) == []
    document = write_plan(store, [shard(0), shard(1)])
    assert list(read_plan(store, document)) == [shard(0), shard(1)]


def test_later_plans_are_appended(store: Store) -> None:
    write_plan(store, [shard(0)])
    write_plan(store, [shard(1)], number=1)
    assert [one.number for one in list_plans(store)] == [0, 1]


def test_a_lost_plan_is_noticed(store: Store) -> None:
    write_plan(store, [shard(1)], number=1)
    with pytest.raises(ProtocolError, match=r"plan number 1 found where 0 was expected"):
        list_plans(store)


def test_a_plan_that_was_read_is_not_forgotten_when_it_is_lost(store: Store) -> None:
    first = write_plan(store, [shard(0)])
    store.delete("plan/0000.json")
    assert list_plans(store, [first]) == [first]
    second = write_plan(store, [shard(1)], number=1)
    assert list_plans(store, [first]) == [first, second]


def test_a_damaged_plan_is_noticed(store: Store) -> None:
    document = write_plan(store, [shard(0)])
    overwrite(store, keys.plan_table(0, document.write_id), b"PAR1")
    with pytest.raises(ProtocolError, match=r"plan/0000-[0-9a-f]+\.parquet: checksum differs"):
        list(read_plan(store, document))


def test_a_shard_listed_twice_is_refused(store: Store) -> None:
    with pytest.raises(ProtocolError, match=r"00000\.tar\) is listed twice"):
        write_plan(store, [shard(0), shard(0)])
    assert list(store.list("")) == []


def test_equal_inputs_do_not_drift() -> None:
    assert not compare([shard(0), shard(1)], [shard(1), shard(0)])


def test_drift_says_what_is_new_changed_and_missing() -> None:
    planned = [shard(0), shard(1), shard(2)]
    listed = [shard(1, version="v2"), shard(2), shard(3)]
    drift = compare(planned, listed)
    assert drift == PlanDrift(
        new=(shard(3),), changed=((shard(1), shard(1, version="v2")),), missing=(shard(0),)
    )
    assert drift
