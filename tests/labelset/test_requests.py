"""How many requests reading takes: what a job on an object store costs its readers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from sapiens_batch.labelset import LabelSet
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.storage import ObjectInfo, open_store
from sapiens_batch.storage.memory import MemoryStore
from tests.labelset.built_job import NUM_SAMPLES, SHARDS, write_job


class CountingStore(MemoryStore):
    """A memory store that notes every request."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.requests: list[str] = []

    def read(self, key: str) -> bytes:
        self.requests.append(f"read {key}")
        return super().read(key)

    def read_range(self, key: str, start: int, stop: int | None = None) -> bytes:
        self.requests.append(f"range {key}")
        return self._objects[key][0][start:stop]

    def size(self, key: str) -> int | None:
        self.requests.append(f"size {key}")
        return super().size(key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self.requests.append(f"list {prefix}")
        return super().list(prefix)


@pytest.fixture
def store() -> CountingStore:
    name = uuid.uuid4().hex
    write_job(open_store(f"memory://{name}"))
    return CountingStore(name)


@pytest.fixture
def labels(store: CountingStore) -> LabelSet:
    opened = LabelSet(Manifest.open(store))
    store.requests.clear()
    return opened


def test_a_sample_by_place_takes_a_few_requests(labels: LabelSet, store: CountingStore) -> None:
    sample = labels.sample_at(SHARDS[0].shard_id, 3)
    tables = len(store.requests)
    assert tables <= 6, store.requests
    assert sample.array("seg") is not None
    assert sample.array("normal") is not None
    assert len(store.requests) - tables <= 5, store.requests


def test_a_row_is_two_ranges_of_one_object_and_the_next_one_more(
    labels: LabelSet, store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapiens_batch.labelset.arrays.SMALL_OBJECT_BYTES", 0)
    assert _requests_for_two_rows(labels, store) == ["range", "range", "range"]


def test_rows_of_a_small_object_are_one_request(labels: LabelSet, store: CountingStore) -> None:
    assert _requests_for_two_rows(labels, store) == ["read"]


def _requests_for_two_rows(labels: LabelSet, store: CountingStore) -> list[str]:
    seg = labels.array("seg")
    for row in (2, 3):
        seg.row(SHARDS[0].shard_id, row)
    return [one.split(" ")[0] for one in store.requests if "arrays/" in one]


def test_reading_in_order_takes_each_object_once(labels: LabelSet, store: CountingStore) -> None:
    for sample in labels.samples():
        sample.array("seg")
    arrays = [one for one in store.requests if "arrays/" in one]
    assert len(arrays) == len(set(arrays)) == 4
    assert len(store.requests) < 2 * NUM_SAMPLES + 8


def test_a_table_scan_opens_one_file_a_shard(labels: LabelSet, store: CountingStore) -> None:
    labels.images.to_table(columns=["key"])
    assert len({one.split(" ")[1] for one in store.requests}) == 2
    assert len(store.requests) <= 8, store.requests
