"""Pictures read again from where a job found them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapiens_batch.errors import InputError
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.records import Shard
from sapiens_batch.sources.lookup import iter_encoded
from sapiens_batch.storage import open_store
from tests.labeled_job import content_of, encode, make_labeled_job


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    path = make_labeled_job(
        tmp_path / "job", num_samples=8, shard_samples=4, row_size=(16, 12), tasks=("embedding",)
    )
    return Manifest.open(open_store(str(path)))


def test_only_wanted_samples_come_in_stored_order_with_their_bytes(manifest: Manifest) -> None:
    shards = list(manifest.shards())
    wanted = {shards[0].shard_id: {3, 1}, shards[1].shard_id: [0]}
    found = list(iter_encoded(manifest.job, shards, wanted))
    assert [(shard_id, sample.index) for shard_id, sample in found] == [
        (shards[0].shard_id, 1), (shards[0].shard_id, 3), (shards[1].shard_id, 0),
    ]  # fmt: skip
    assert found[0][1].encoded == encode(content_of(1, 0))


def test_a_shard_that_changed_is_refused(manifest: Manifest, tmp_path: Path) -> None:
    shards = list(manifest.shards())
    (tmp_path / "job-corpus" / "00000.tar").write_bytes(b"other")
    with pytest.raises(InputError, match="has changed"):
        list(iter_encoded(manifest.job, shards, {shards[0].shard_id: {0}}))


def test_the_other_shards_still_come_where_trouble_is_noted(
    manifest: Manifest, tmp_path: Path
) -> None:
    shards = list(manifest.shards())
    (tmp_path / "job-corpus" / "00000.tar").unlink()
    noted: list[Shard] = []
    found = list(
        iter_encoded(
            manifest.job,
            shards,
            {shard.shard_id: {0} for shard in shards},
            on_unreadable=lambda shard, _: noted.append(shard),
        )
    )
    assert [shard.key for shard in noted] == ["00000.tar"]
    assert [shard_id for shard_id, _ in found] == [shards[1].shard_id]


def test_a_job_without_a_known_source_is_refused() -> None:
    job = JobDocument(name="odd", spec={"name": "odd"}, spec_digest="0" * 64, schemas=())
    with pytest.raises(InputError, match="'odd': its source cannot be read again"):
        list(iter_encoded(job, [], {}))
