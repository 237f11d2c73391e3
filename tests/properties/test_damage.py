"""A bit that flips anywhere, at any time, is found; it is never certified anew (I8)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict, replace
from random import Random

import pytest

from sapiens_batch.errors import DamagedReceiptError, ProtocolError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.plan import write_plan
from sapiens_batch.protocol.seal import seal_shard
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.records import Shard
from sapiens_batch.sinks import label_schema as schema_json
from sapiens_batch.stages.flow import LabeledChunk
from sapiens_batch.stages.write import ChunkWriter
from sapiens_batch.storage.memory import MemoryStore
from sapiens_batch.verify import check_job, order_repairs
from tests.small_tasks import CHUNK_SAMPLES, SCHEMAS, SHARD, labeled_chunk, seal_job

TODO = ShardTodo(SHARD)
AGAIN = ShardTodo(SHARD, frozenset({1}), 1, frozenset({1}))
OPEN_SHARD = Shard("cd" * 16, "001.tar", "file:///in/001.tar", "10-2", 10)
names = itertools.count()


def store_of(objects: Mapping[str, bytes]) -> MemoryStore:
    store = MemoryStore(f"damage-{next(names)}")
    for key, data in objects.items():
        store.create(key, data)
    return store


def objects_of(store: MemoryStore) -> dict[str, bytes]:
    return {info.key: store.read(info.key) for info in store.list("")}


def flipped(data: bytes, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def write(store: MemoryStore, *chunks: LabeledChunk) -> None:
    writer = ChunkWriter(store, SCHEMAS, [], CHUNK_SAMPLES)
    for chunk in chunks:
        writer.write(chunk)


def relabeled() -> LabeledChunk:
    """Sample 1 alone, as a later generation labels it."""
    alone = labeled_chunk([2], first=1)
    header = replace(
        alone.header, start=0, stop=4, last=False, generation=1, ordered=frozenset({1})
    )
    return replace(alone, header=header)


def carry_out(store: MemoryStore, todo: ShardTodo) -> None:
    """Label a whole shard again, as a run carries out an order of all samples."""
    chunks = [labeled_chunk([1, None, 2, 0], last=False), labeled_chunk([1, 1], index=1)]
    for chunk in chunks:
        header = replace(chunk.header, shard_id=todo.shard.shard_id, generation=todo.generation)
        write(store, replace(chunk, header=header))
    seal_shard(seal_job(store), todo, {0, 1})


@pytest.fixture(scope="module")
def labeled() -> dict[str, bytes]:
    """A planned job with all chunks of one shard labeled, and its seal not begun."""
    store = MemoryStore(f"damage-{next(names)}")
    job = JobDocument(
        name="damage",
        spec={},
        spec_digest="0" * 64,
        schemas=tuple(schema_json.to_json(one) for one in SCHEMAS.values()),
        capabilities=asdict(store.probe()),
    )
    Manifest.create(store, job)
    write_plan(store, [SHARD, OPEN_SHARD])
    write(store, labeled_chunk([1, None, 2, 0], last=False), labeled_chunk([1, 1], index=1))
    return objects_of(store)


@pytest.fixture(scope="module")
def committed(labeled: dict[str, bytes]) -> dict[str, bytes]:
    """The same with the shard committed."""
    store = store_of(labeled)
    seal_shard(seal_job(store), TODO, {0, 1})
    return objects_of(store)


def is_sound(store: MemoryStore) -> bool:
    return not check_job(Manifest.open(store)).damaged


def test_a_bit_that_flips_before_sealing_is_never_certified(labeled: dict[str, bytes]) -> None:
    random = Random(1)
    stored = [key for key in labeled if key.startswith((keys.RECEIPTS, keys.ARRAYS))]
    for _ in range(200):
        key = random.choice(stored)
        data = labeled[key]
        store = store_of(labeled | {key: flipped(data, random.randrange(8 * len(data)))})
        if key.startswith(keys.RECEIPTS):
            with pytest.raises(DamagedReceiptError):
                seal_shard(seal_job(store), TODO, {0, 1})
        else:
            seal_shard(seal_job(store), TODO, {0, 1})
            assert not is_sound(store)


def test_a_bit_that_flips_before_a_generation_is_never_certified(
    committed: dict[str, bytes],
) -> None:
    random = Random(2)
    stored = [key for key in committed if key.startswith((keys.TABLES, keys.ARRAYS, keys.COMMITS))]
    refused = 0
    for _ in range(100):
        key = random.choice(stored)
        data = committed[key]
        store = store_of(committed | {key: flipped(data, random.randrange(8 * len(data)))})
        Manifest.open(store).relabel(SHARD.shard_id, [1], cause="retry")
        try:
            write(store, relabeled())
            seal_shard(seal_job(store), AGAIN, {0})
        except ProtocolError as error:
            assert key in str(error)
            refused += 1
        else:
            # the description is written anew, and an object of the other chunk keeps its record
            assert is_sound(store) is key.endswith("zarr.json")
    assert refused > 50


def test_verify_finds_a_flipped_bit_in_whatever_counts_and_a_run_mends_it(
    committed: dict[str, bytes],
) -> None:
    store = store_of(committed)
    manifest = Manifest.open(store)
    chunk = labeled_chunk([1, None, 2, 0], last=False)
    header = replace(chunk.header, shard_id=OPEN_SHARD.shard_id)
    write(store, replace(chunk, header=header))
    assert is_sound(store)
    manifest.relabel(SHARD.shard_id, [1], cause="retry")
    whole = objects_of(store)
    spent = keys.receipts(SHARD.shard_id)
    random = Random(3)
    for key, data in whole.items():
        if key.startswith(spent) or key == keys.JOB:
            continue  # a receipt of a committed shard is read by nobody
        for _ in range(8):
            store = store_of(whole | {key: flipped(data, random.randrange(8 * len(data)))})
            manifest = Manifest.open(store)
            report = check_job(manifest)
            assert key in {one.key for one in report.findings} or key.startswith(keys.PLAN)
            assert report.damaged
        if not key.startswith(keys.PLAN):
            assert order_repairs(manifest, report)[1] == []
            for todo in manifest.todo():
                carry_out(store, replace(todo, samples=None))
            assert is_sound(store)


def test_a_flipped_bit_in_the_jobs_own_document_is_told(labeled: dict[str, bytes]) -> None:
    data = labeled[keys.JOB]
    for bit in range(0, 8 * len(data), 7):
        with pytest.raises(ProtocolError, match=r"job\.json.*damaged"):
            Manifest.open(store_of({keys.JOB: flipped(data, bit)}))
