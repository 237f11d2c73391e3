"""Identity of shards."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import get_args

import pytest

from sapiens_batch.sources import SOURCES, make_source, with_absolute_addresses
from sapiens_batch.sources.shards import make_shard_id, slice_shards
from sapiens_batch.spec.job import SourceSpec


def test_an_id_is_a_hash_of_key_version_and_members() -> None:
    assert make_shard_id("a.tar", "v1") == hashlib.sha256(b"a.tar\0v1").hexdigest()[:32]
    ids = {make_shard_id("a", "v"), make_shard_id("a", "w"), make_shard_id("a", "v", ["m"])}
    assert len(ids) == 3


def test_slices_have_so_many_names_and_the_rest() -> None:
    shards = list(slice_shards("/root", ["a", "b", "c", "d", "e"], 2))
    assert [shard.members for shard in shards] == [("a", "b"), ("c", "d"), ("e",)]
    assert [shard.key for shard in shards] == ["a..b", "c..d", "e..e"]


def test_every_format_of_the_spec_has_a_source() -> None:
    assert set(SOURCES) == set(get_args(SourceSpec.model_fields["format"].annotation))
    for name, source_class in SOURCES.items():
        spec = SourceSpec.model_validate({"format": name, "uri": "x"})
        assert type(make_source(spec)) is source_class


def test_absolute_addresses_no_longer_depend_on_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = SourceSpec(
        format="coco",
        uri=["a/{0..1}.json", "@l.txt", "s3://b/x"],
        root="images",
        select="keys.npy",
    )
    absolute = with_absolute_addresses(spec)
    assert absolute.uris == [f"{tmp_path}/a/{{0..1}}.json", f"@{tmp_path}/l.txt", "s3://b/x"]
    assert absolute.root == f"{tmp_path}/images"
    assert absolute.select == f"{tmp_path}/keys.npy"
