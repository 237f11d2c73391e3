"""What a job asks of its store when nothing goes wrong: requests are what an object store bills."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from sapiens_batch.protocol.manifest import Manifest
from tests.chaos.jobs import Place, make_job, run_here
from tests.cluster import SharedCluster
from tests.counting_store import CountingStore
from tests.small_tasks import SCHEMAS
from tests.synthetic import write_corpus

NUM_ARRAYS = sum(schema.array is not None for schema in SCHEMAS.values())
NUM_TABLES = 2
CHUNK_SAMPLES = 3

Requests = Counter[tuple[str, str]]
"""How often what was asked of which kind of object."""


def requests_of(folder: Path, *, num_shards: int, shard_chunks: int) -> Requests:
    """Label a corpus of full chunks with real workers; what that asked of the store."""
    write_corpus(folder / "corpus", num_shards, shard_chunks * CHUNK_SAMPLES)
    job = make_job(Place(f"{folder}/corpus", f"{folder}/out"), chunk_samples=CHUNK_SAMPLES)
    store = CountingStore(folder / "out", folder / "requests")
    assert run_here(replace(job, store=store)).exit_code == 0
    num_chunks = sum(len(one.arrays["seg"].chunks) for one in Manifest.open(job.store).commits())
    assert num_chunks == num_shards * shard_chunks
    return Counter((request.kind, _what(request.key)) for request in store.requests())


def _what(key: str) -> str:
    if key.startswith("arrays/"):
        return "array document" if key.endswith("zarr.json") else "array"
    return key.split("/", 1)[0]


@pytest.fixture(scope="module")
def small(ray_cluster: SharedCluster, tmp_path_factory: pytest.TempPathFactory) -> Requests:
    return requests_of(tmp_path_factory.mktemp("small"), num_shards=2, shard_chunks=2)


@pytest.fixture(scope="module")
def large(ray_cluster: SharedCluster, tmp_path_factory: pytest.TempPathFactory) -> Requests:
    return requests_of(tmp_path_factory.mktemp("large"), num_shards=5, shard_chunks=4)


def test_a_chunk_creates_its_arrays_and_one_receipt(large: Requests) -> None:
    assert large["create", "array"] == 20 * NUM_ARRAYS
    assert large["create", "receipts"] == 20


def test_a_shard_reads_its_receipts_and_creates_array_documents_tables_and_a_commit(
    large: Requests,
) -> None:
    assert large["read", "receipts"] == 20
    assert large["create", "array document"] == 5 * NUM_ARRAYS
    assert large["create", "tables"] == 5 * NUM_TABLES
    assert large["create", "commits"] == 5


def test_nothing_is_deleted_or_copied(large: Requests) -> None:
    assert not [what for what in large if what[0] in ("delete", "copy")]


def test_nothing_else_is_asked_of_the_store_however_large_the_job(
    small: Requests, large: Requests
) -> None:
    more = large - small
    # a journal is written as time passes
    more = Counter({what: count for what, count in more.items() if what[1] != "runs"})
    assert more == {
        ("create", "array"): 16 * NUM_ARRAYS,
        ("create", "receipts"): 16,
        ("read", "receipts"): 16,
        ("create", "array document"): 3 * NUM_ARRAYS,
        ("create", "tables"): 3 * NUM_TABLES,
        ("create", "commits"): 3,
        ("read", "commits"): 3,  # once, when the run adds up what the job has
    }
