"""One driver at a time where the store cannot decide between two."""

from __future__ import annotations

import time

import pytest

from sapiens_batch.errors import StorageError
from sapiens_batch.pipeline.lease import Claim, Lease, LeaseTiming, sole_driver
from sapiens_batch.storage import Store, keys
from sapiens_batch.storage.memory import MemoryStore

FAST = LeaseTiming(renew_s=0.05, expire_s=0.5, settle_s=0.01)


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Store:
    return MemoryStore(request.node.name)


def test_a_second_driver_is_refused_while_the_first_is_alive(store: Store) -> None:
    with sole_driver(store, FAST) as lost:
        time.sleep(0.2)
        with pytest.raises(StorageError, match="only one driver may run"), sole_driver(store, FAST):
            pass
        assert not lost.is_set()
    assert list(store.list(keys.LEASES)) == []


def test_the_next_driver_starts_at_once_when_the_first_has_ended(store: Store) -> None:
    with sole_driver(store, FAST):
        pass
    with sole_driver(store, FAST) as lost:
        assert not lost.is_set()


def test_a_driver_that_died_holds_the_job_until_its_claim_expires(store: Store) -> None:
    Lease(store, FAST)
    with pytest.raises(StorageError), sole_driver(store, FAST):
        pass
    time.sleep(FAST.expire_s)
    with sole_driver(store, FAST):
        pass


def test_of_two_that_start_together_exactly_one_holds_the_job(store: Store) -> None:
    leases = [Lease(store, FAST) for _ in range(2)]
    assert [lease.rival() is None for lease in leases].count(True) == 1


def test_renewing_does_not_make_a_claim_younger(store: Store) -> None:
    first = Lease(store, FAST)
    second = Lease(store, FAST)
    for _ in range(3):
        assert first.renew()
        assert not second.renew()


def test_a_driver_that_lost_its_claim_is_told(store: Store) -> None:
    with sole_driver(store, FAST) as lost:
        older = Claim(since=0, owner="0" * 32, created="")
        store.create(keys.lease(0, older.owner), older.to_bytes())
        assert lost.wait(2.0)
