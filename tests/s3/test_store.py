"""The store contract on real S3 servers, and what only they can show."""

from __future__ import annotations

import uuid

import pytest

from sapiens_batch.errors import StorageError
from sapiens_batch.storage import Store, fsspec_store, open_store
from tests.conformance.store_contract import StoreContract
from tests.s3.servers import S3Server


class TestOnSeaweedFS(StoreContract):
    # contended conditional puts back off in steps of a second there
    race_rounds = 1

    @pytest.fixture
    def store(self, weed: S3Server) -> Store:
        return open_store(weed.uri(uuid.uuid4().hex), weed.options)


class TestOnMoto(StoreContract):
    race_rounds = 2

    @pytest.fixture
    def store(self, moto_server: S3Server) -> Store:
        return open_store(moto_server.uri(uuid.uuid4().hex), moto_server.options)


def test_an_upload_in_parts_is_created_once_too(weed: S3Server) -> None:
    store = open_store(weed.uri(uuid.uuid4().hex), weed.options)
    first = bytes(101 * 2**20)
    assert store.create("large", first) is True
    assert store.create("large", first[:-1] + b"x") is False
    assert store.size("large") == len(first)
    assert store.read_range("large", -2) == b"\0\0"


def test_a_listing_of_many_pages_is_whole(moto_server: S3Server) -> None:
    store = open_store(moto_server.uri(uuid.uuid4().hex), moto_server.options)
    wanted = [f"receipts/{number:04d}" for number in range(25)]
    for key in wanted:
        store.create(key, b"x")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fsspec_store, "PAGE_OBJECTS", 10)
        assert [info.key for info in store.list("receipts/")] == wanted


def test_a_bucket_that_does_not_exist_is_named(moto_server: S3Server) -> None:
    store = open_store("s3://no-such-bucket/job", moto_server.options)
    with pytest.raises(StorageError, match=r"s3://no-such-bucket/job.*check the address"):
        store.probe()


def test_a_wrong_secret_is_reported_with_the_address(weed: S3Server) -> None:
    store = open_store(weed.uri("job"), {**weed.options, "secret": "wrong"})
    with pytest.raises(StorageError, match=r"s3://jobs/job.*credentials in storage_options"):
        store.probe()
    assert "wrong" not in repr(store)
