"""What a job directory says is done and left to do (I2, I4)."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from sapiens_batch.errors import DriftError, ProtocolError, StorageError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.documents import Counts
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.protocol.manifest import Manifest, done_chunks
from sapiens_batch.protocol.plan import write_plan
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.sinks import label_schema as schema
from sapiens_batch.storage import MissingObjectError, Store
from sapiens_batch.storage.memory import MemoryStore
from tests.protocol.documents import DIGEST, receipt, shard
from tests.sealed import sealed
from tests.sinks.test_label_schema import SEG


@pytest.fixture
def store() -> Store:
    return MemoryStore(uuid.uuid4().hex)


def job(**changes: Any) -> JobDocument:
    values: dict[str, Any] = {
        "name": "quickstart",
        "spec": {"name": "quickstart"},
        "spec_digest": DIGEST,
        "schemas": (schema.to_json(SEG),),
    }
    return JobDocument(**(values | changes))


def commit(number: int, **changes: Any) -> Commit:
    planned = shard(number)
    values: dict[str, Any] = {
        "spec_digest": DIGEST,
        "shard_id": planned.shard_id,
        "shard_key": planned.key,
        "shard_version": planned.version,
        "num_samples": 4,
        "counts": Counts(ok=4),
        "write_id": "d" * 32,
        "chunks": ((0, 4, "e" * 32),),
        "created": "2026-01-01T00:00:00+00:00",
    }
    return Commit(**(values | changes))


def put_commit(store: Store, number: int, **changes: Any) -> None:
    store.create(keys.commit(shard(number).shard_id), commit(number, **changes).to_bytes())


def put_receipt(store: Store, number: int, chunk: int) -> None:
    one = receipt(chunk, chunk * 4, chunk * 4 + 4, shard_id=shard(number).shard_id)
    store.create(keys.receipt(one.shard_id, chunk), one.pack({}))


def test_a_created_job_opens_again_with_its_schemas(store: Store) -> None:
    Manifest.create(store, job())
    assert Manifest.open(store).job.label_schemas == (SEG,)


def test_a_store_without_a_job_is_refused_with_what_to_do(store: Store) -> None:
    with pytest.raises(StorageError, match=r"is not a job directory: it has no job\.json"):
        Manifest.open(store)


def test_creating_the_same_job_again_keeps_the_first_document(store: Store) -> None:
    first = Manifest.create(store, job(created="2026-01-01T00:00:00+00:00"))
    again = Manifest.create(store, job(created="2026-02-02T00:00:00+00:00"))
    assert again.job == first.job


def test_another_spec_is_drift(store: Store) -> None:
    Manifest.create(store, job())
    with pytest.raises(DriftError, match="spec digest 555555555555, this spec has 666666666666"):
        Manifest.create(store, job(spec_digest="6" * 64))


def test_a_newer_format_is_refused(store: Store) -> None:
    store.create(keys.JOB, sealed({**json.loads(job().to_bytes()), "format_version": 2}))
    with pytest.raises(ProtocolError, match=r"job\.json.*format_version"):
        Manifest.open(store)


def test_what_is_to_do_is_the_plan_less_commits_less_receipts(store: Store) -> None:
    manifest = Manifest.create(store, job())
    write_plan(store, [shard(0), shard(1), shard(2)])
    write_plan(store, [shard(3)], number=1)
    put_commit(store, 1)
    for number, chunk in ((0, 2), (0, 0), (1, 0), (3, 0)):
        put_receipt(store, number, chunk)
    assert manifest.todo() == [
        ShardTodo(shard(0), frozenset({0, 2})),
        ShardTodo(shard(2), frozenset()),
        ShardTodo(shard(3), frozenset({0})),
    ]
    assert manifest.generations() == {shard(1).shard_id: 0}


def test_a_new_job_has_no_plan_and_nothing_to_do(store: Store) -> None:
    manifest = Manifest.create(store, job())
    assert manifest.plans() == []
    assert manifest.todo() == []
    assert list(manifest.commits()) == []


def test_stray_keys_are_not_taken_for_receipts() -> None:
    stray = ["receipts/", "receipts/x/000000.receipt", f"receipts/{shard(0).shard_id}/notes.txt"]
    assert done_chunks(stray, set()) == {}


def test_receipts_without_a_plan_are_ignored(store: Store) -> None:
    manifest = Manifest.create(store, job())
    put_receipt(store, 0, 1)
    assert manifest.todo() == []


def test_receipts_are_read_in_chunk_order(store: Store) -> None:
    manifest = Manifest.create(store, job())
    for chunk in (3, 0, 11):
        put_receipt(store, 0, chunk)
    assert [one.chunk for one in manifest.receipts(shard(0).shard_id)] == [0, 3, 11]
    assert manifest.receipts(shard(1).shard_id) == []


def test_commits_are_read_by_shard(store: Store) -> None:
    manifest = Manifest.create(store, job())
    for number in (2, 0):
        put_commit(store, number)
    assert [one.shard_key for one in manifest.commits()] == ["00000.tar", "00002.tar"]
    assert manifest.commit(shard(2).shard_id).shard_key == "00002.tar"
    with pytest.raises(MissingObjectError):
        manifest.commit(shard(1).shard_id)


def test_a_commit_of_another_job_is_refused(store: Store) -> None:
    manifest = Manifest.create(store, job())
    put_commit(store, 0, spec_digest="7" * 64)
    with pytest.raises(ProtocolError, match="two jobs wrote to this directory"):
        list(manifest.commits())


def test_a_commit_under_another_shards_key_is_refused(store: Store) -> None:
    manifest = Manifest.create(store, job())
    store.create(keys.commit(shard(5).shard_id), commit(0).to_bytes())
    with pytest.raises(ProtocolError, match=f"names shard {shard(0).shard_id}"):
        manifest.commit(shard(5).shard_id)
