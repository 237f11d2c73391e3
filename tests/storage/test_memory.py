"""The memory backend: the store contract."""

from __future__ import annotations

import uuid

import pytest

from sapiens_batch.storage import Store
from sapiens_batch.storage.memory import MemoryStore
from tests.conformance.store_contract import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore(uuid.uuid4().hex)


def test_stores_of_one_name_share_their_objects_and_others_do_not() -> None:
    name = uuid.uuid4().hex
    MemoryStore(name).create("a", b"1")
    assert MemoryStore(name).read("a") == b"1"
    assert not MemoryStore(name + "2").exists("a")
