"""Every source whose files may lie in a bucket: the samples are those of the same files on disk."""

from __future__ import annotations

import uuid
from pathlib import Path

import fsspec
import pytest

from sapiens_batch.sources import make_source
from sapiens_batch.sources.base import Source
from sapiens_batch.sources.chunks import iter_chunks
from sapiens_batch.spec.job import SourceSpec
from sapiens_batch.storage.input_errors import ChangedInputError
from tests.conformance.source_contract import SourceContract, facts, samples_of
from tests.s3.faulty_proxy import faulty_proxy
from tests.s3.servers import S3Server
from tests.sources import (
    test_coco,
    test_delta,
    test_huggingface,
    test_images,
    test_img2dataset,
    test_lance,
    test_listing,
    test_overwritten,
    test_parquet,
    test_webdataset,
)

CORPORA = (
    test_webdataset.TestWebDatasetSource,
    test_img2dataset.TestImg2datasetSource,
    test_parquet.TestParquetSource,
    test_huggingface.TestHubLayout,
    test_huggingface.TestSavedLayout,
    test_images.TestImagesSource,
    test_listing.TestListingSource,
    test_listing.TestCsvListing,
    test_listing.TestParquetListing,
    test_coco.TestCocoSource,
)


def upload(server: S3Server, folder: Path) -> str:
    """Put a folder into the bucket; returns its address."""
    target = server.uri(f"corpus-{uuid.uuid4().hex}")
    system = fsspec.filesystem("s3", **server.options)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            system.pipe_file(f"{target}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    return target


def moved(spec: SourceSpec, folder: Path, target: str, server: S3Server) -> SourceSpec:
    """The spec with another address for the folder of the corpus."""
    uri = str(spec.uri).replace(str(folder), target)
    return spec.model_copy(update={"uri": uri, "storage_options": server.options})


def told(source: Source) -> list[tuple[str, list[object]]]:
    """Shards by key, and what they hold; of problems the reason, for messages name addresses."""
    found: list[tuple[str, list[object]]] = []
    for shard in source.plan():
        samples = [
            (*facts(sample)[:-1], sample.problem and sample.problem.reason)
            for sample in samples_of(source, shard)
        ]
        found.append((shard.key, list(samples)))
    return found


@pytest.mark.parametrize("corpus", CORPORA, ids=lambda one: one.__name__.removeprefix("Test"))
def test_a_bucket_gives_the_samples_of_the_disk(
    weed: S3Server, tmp_path: Path, corpus: type[SourceContract]
) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    writer = corpus()
    writer.write_corpus(folder)
    spec = writer.spec(folder)
    remote = make_source(moved(spec, folder, upload(weed, folder), weed))
    expected = told(make_source(spec))
    assert [key for key, _ in expected] == list(corpus.SHARD_KEYS)
    assert told(remote) == expected
    shards = list(remote.plan())
    assert all(shard.uri.startswith("s3://") and shard.version for shard in shards)
    assert [shard.shard_id for shard in remote.plan()] == [shard.shard_id for shard in shards]


def test_a_changed_object_is_another_shard(weed: S3Server, tmp_path: Path) -> None:
    writer = test_webdataset.TestWebDatasetSource()
    writer.write_corpus(tmp_path)
    target = upload(weed, tmp_path)
    source = make_source(moved(writer.spec(tmp_path), tmp_path, target, weed))
    before = [shard.shard_id for shard in source.plan()]
    data = (tmp_path / "02.tar").read_bytes().replace(b"no image", b"NO IMAGE")
    fsspec.filesystem("s3", **weed.options).pipe_file(f"{target}/02.tar", data)
    after = [shard.shard_id for shard in source.plan()]
    assert (after[:2], after[2] == before[2]) == (before[:2], False)


@pytest.mark.parametrize("write", [test_overwritten.write_tar, test_overwritten.write_images])
def test_an_overwritten_object_fails_before_a_chunk_of_mixed_content(
    weed: S3Server, tmp_path: Path, write: test_overwritten.Write
) -> None:
    spec = write(tmp_path, 1)
    target = upload(weed, tmp_path)
    spec = moved(spec, tmp_path, target, weed)
    options = {**weed.options, "default_block_size": 2**20}
    source = make_source(spec.model_copy(update={"storage_options": options}))
    (shard,) = source.plan()
    seen: list[int] = []

    def read() -> None:
        for chunk in iter_chunks(source, shard, 4):
            seen.extend(sample.encoded[0] for sample in chunk.samples if sample.encoded)
            assert not chunk.last
            if chunk.index == 0:
                write(tmp_path, 2)
                system = fsspec.filesystem("s3", **weed.options)
                for path in tmp_path.iterdir():
                    system.pipe_file(f"{target}/{path.name}", path.read_bytes())

    with pytest.raises(ChangedInputError, match="has changed since it was planned"):
        read()
    assert set(seen) == {1}


def test_reading_a_shard_looks_at_its_version_with_one_request(
    weed: S3Server, tmp_path: Path
) -> None:
    spec = test_overwritten.write_tar(tmp_path, 1)
    target = upload(weed, tmp_path)
    with faulty_proxy(weed.endpoint) as (endpoint, faults):
        server = weed.through(endpoint)
        source = make_source(moved(spec, tmp_path, target, server))
        (shard,) = source.plan()
        faults.requests.clear()
        assert len(list(iter_chunks(source, shard, 4))) == 10
    requests = [(method, path.partition("?")[0][-5:]) for method, path in faults.requests]
    assert requests.count(("HEAD", "a.tar")) == 1
    assert requests.count(("GET", "a.tar")) == 1


def test_boxes_of_an_annotation_file_in_a_bucket(weed: S3Server, tmp_path: Path) -> None:
    images = [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b/a b+é.jpg"}]
    annotations = [test_coco.annotation(2, [1, 2, 30, 40])]
    test_coco.write_coco(tmp_path, images, annotations, test_coco.PERSON)
    uri = f"{upload(weed, tmp_path)}/annotations.json"
    source = make_source(SourceSpec(format="coco", uri=uri, storage_options=weed.options))
    (shard,) = source.plan()
    samples = samples_of(source, shard)
    assert [sample.encoded for sample in samples] == [b"1", b"2"]
    assert samples[1].boxes is not None
    assert samples[1].boxes.tolist() == [[1, 2, 30, 40]]


def test_a_listing_on_disk_may_name_objects_of_a_bucket(weed: S3Server, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"A")
    target = upload(weed, tmp_path)
    (tmp_path / "list.txt").write_text(f"{target}/a.jpg\n{target}/gone.jpg\na.jpg\n")
    spec = SourceSpec(
        format="listing", uri=str(tmp_path / "list.txt"), storage_options=weed.options
    )
    source = make_source(spec)
    (shard,) = source.plan()
    assert [sample.encoded for sample in samples_of(source, shard)] == [b"A", None, b"A"]


@pytest.mark.parametrize(
    "corpus", [test_lance.TestLanceSource, test_delta.TestDeltaSource], ids=["lance", "delta"]
)
def test_tables_are_opened_in_a_bucket_by_their_own_library(
    weed: S3Server, tmp_path: Path, corpus: type[SourceContract]
) -> None:
    writer = corpus()
    writer.write_corpus(tmp_path)
    spec = moved(writer.spec(tmp_path), tmp_path, upload(weed, tmp_path), weed)
    options = {
        "aws_endpoint": weed.endpoint,
        "aws_access_key_id": weed.options["key"],
        "aws_secret_access_key": weed.options["secret"],
        "aws_region": "us-east-1",
        "allow_http": "true",
    }
    remote = make_source(spec.model_copy(update={"catalog_options": options}))
    assert told(remote) == told(make_source(writer.spec(tmp_path)))
