"""One driver at a time where the store cannot decide between two."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sapiens_batch.driver.lease import Claim, Lease, LeaseTiming, sole_driver
from sapiens_batch.errors import StorageError
from sapiens_batch.protocol import keys
from sapiens_batch.storage import LocalStore, Store
from sapiens_batch.storage.fsspec_store import FsspecStore
from sapiens_batch.storage.memory import MemoryStore

FAST = LeaseTiming(renew_s=0.05, expire_s=1.0, settle_s=0.01)


@pytest.fixture(params=["memory", "local", "fsspec"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Stores without conditional create, with the real clocks of memory and of a file system."""
    if request.param == "memory":
        return MemoryStore(request.node.name)
    if request.param == "local":
        return LocalStore(tmp_path)
    return FsspecStore(f"file://{tmp_path}", {"auto_mkdir": True}, conditional_create=False)


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


def test_a_claim_that_is_renewed_while_it_is_looked_at_is_found() -> None:
    class BusyStore(MemoryStore):
        def read(self, key: str) -> bytes:
            if key == first_key:
                first.renew()
            return super().read(key)

    store, first_key = BusyStore("busy"), ""
    first, second = Lease(store, FAST), Lease(store, FAST)
    first_key = next(info.key for info in store.list(keys.LEASES))
    assert second.rival() is not None


def test_a_driver_that_was_paused_until_another_took_over_gives_way(store: Store) -> None:
    paused = Lease(store, FAST)
    time.sleep(FAST.expire_s)
    other = Lease(store, FAST)
    assert other.rival() is None
    assert not paused.renew()
    assert other.renew()


def test_a_driver_that_was_paused_while_it_renewed_its_claim_is_told() -> None:
    class SlowStore(MemoryStore):
        def create(self, key: str, data: bytes) -> bool:
            time.sleep(delays_s.pop() if delays_s else 0.0)
            return super().create(key, data)

    delays_s = [FAST.expire_s, 0.0]
    with sole_driver(SlowStore("slow"), FAST) as lost:
        assert lost.wait(3.0)
