"""A whole job directory and its input on S3: read, verify, repair orders, independent readers."""

from __future__ import annotations

import io
import tarfile
import uuid

import numpy as np
import pyarrow.dataset as ds
import pytest
import zarr
from pyarrow import fs

from sapiens_batch.labelset import open_labels
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.snapshot import write_snapshot
from sapiens_batch.sources import make_source
from sapiens_batch.spec.job import SourceSpec
from sapiens_batch.storage import Store, open_store
from sapiens_batch.verify import check_job, collect_garbage, order_repairs
from tests.labelset.built_job import SHARDS, seg_row, write_generation, write_job
from tests.s3.servers import KEY, REGION, SECRET, S3Server

FIRST = SHARDS[0].shard_id


@pytest.fixture(scope="module")
def folder(weed: S3Server) -> str:
    folder = f"job-{uuid.uuid4().hex}"
    write_job(open_store(weed.uri(folder), weed.options))
    return folder


@pytest.fixture
def store(weed: S3Server, folder: str) -> Store:
    return open_store(weed.uri(folder), weed.options)


def test_labels_are_read_through_ranged_requests(weed: S3Server, folder: str) -> None:
    labels = open_labels(weed.uri(folder), weed.options)
    assert labels.images.count_rows() == 12
    np.testing.assert_array_equal(labels.array("seg")[FIRST, 5], seg_row(0, 5))
    assert labels.sample("only-1").persons[0]["keypoints"].shape == (5, 2)


def test_a_reader_of_pyarrow_and_zarr_alone_sees_the_same(weed: S3Server, store: Store) -> None:
    commit = Manifest.open(store).commit(FIRST)
    s3 = fs.S3FileSystem(
        access_key=KEY,
        secret_key=SECRET,
        region=REGION,
        endpoint_override=weed.endpoint,
        allow_bucket_creation=False,
    )
    root = store.uri.removeprefix("s3://")
    table = ds.dataset(f"{root}/{commit.tables['images'].key}", filesystem=s3).to_table()
    array = zarr.open_array(
        f"{store.uri}/{commit.arrays['seg'].root}", mode="r", storage_options=weed.options
    )
    for row in table.select(["index", "seg_row"]).to_pylist():
        if row["seg_row"] is not None:
            np.testing.assert_array_equal(array[row["seg_row"]], seg_row(0, row["index"]))


def test_a_flipped_byte_is_found_and_mended_by_a_later_generation(
    weed: S3Server,
) -> None:
    store = open_store(weed.uri(f"job-{uuid.uuid4().hex}"), weed.options)
    write_job(store)
    manifest = Manifest.open(store)
    stored = manifest.commit(FIRST).arrays["seg"].chunks[1]
    damaged = bytearray(store.read(stored.key))
    damaged[3] ^= 1
    store.delete(stored.key)
    store.create(stored.key, bytes(damaged))
    report = check_job(manifest)
    assert [finding.key for finding in report.findings] == [stored.key]
    (order,), _ = order_repairs(manifest, report)
    write_generation(store, 0, order.generation, (1,), manifest.commit(FIRST))
    assert not check_job(manifest).damaged
    labels = open_labels(store.uri, weed.options)
    np.testing.assert_array_equal(labels.array("seg")[FIRST, 5], seg_row(0, 5))


def test_a_snapshot_and_a_collection_leave_the_job_sound(store: Store) -> None:
    manifest = Manifest.open(store)
    assert write_snapshot(manifest, min_new_commits=1) is not None
    assert list(collect_garbage(manifest)) == []
    assert not check_job(manifest).damaged


def test_shards_are_listed_and_read_from_a_bucket(weed: S3Server) -> None:
    corpus = open_store(weed.uri(f"corpus-{uuid.uuid4().hex}"), weed.options)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in ("a", "b"):
            member = tarfile.TarInfo(f"{name}.jpg")
            member.size = 4
            tar.addfile(member, io.BytesIO(b"jpeg"))
    for number in range(3):
        corpus.create(f"train/{number:03d}.tar", buffer.getvalue())
    source = make_source(
        SourceSpec(
            format="webdataset",
            uri=f"{corpus.uri}/train/{{000..002}}.tar",
            storage_options=weed.options,
        )
    )
    shards = list(source.plan())
    assert [shard.key for shard in shards] == ["000.tar", "001.tar", "002.tar"]
    assert [sample.key for sample in source.read(shards[1])] == ["a", "b"]
    assert all(shard.version for shard in shards)
