"""Every shard of the shared collection, ready or damaged, gets the outcome it asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sapiens_batch.errors import InputError
from sapiens_batch.records import Sample
from sapiens_batch.sources import make_source
from sapiens_batch.spec.job import SourceSpec
from tests.sources.corpora import good_keys, read_shard, reasons

TARS = {
    "img2dataset/00000.tar": (12, {}, ["not_downloaded"]),
    "bad/nested_dirs.tar": (4, {}, []),
    "bad/pax_unicode.tar": (4, {}, []),
    "bad/gnu_longname.tar": (3, {}, []),
    "bad/ustar_prefix.tar": (3, {}, []),
    "bad/upper_case_ext.tar": (6, {}, []),
    "bad/duplicate_key_apart.tar": (3, {"000": "duplicate_key"}, []),
    "bad/duplicate_member.tar": (1, {"000": "duplicate_member"}, []),
    "bad/zero_length_members.tar": (4, {}, []),
    "bad/missing_parts.tar": (3, {"001": "missing_image"}, []),
    "bad/bad_json_txt.tar": (2, {}, []),
    "bad/multi_dot_ext.tar": (2, {"001": "ambiguous_image"}, []),
    "bad/os_junk.tar": (2, {}, ["no_suffix"]),
    "bad/links_and_escapes.tar": (2, {}, ["unsupported_member", "unsafe_name"]),
    "bad/truncated_mid_member.tar": (3, {"00003": "truncated"}, ["truncated"]),
    "bad/truncated_in_header.tar": (3, {}, ["truncated"]),
    "bad/truncated_at_boundary.tar": (3, {}, ["no_end"]),
    "bad/no_end_blocks.tar": (6, {}, ["no_end"]),
    "bad/bad_checksum_header.tar": (2, {}, ["bad_header"]),
    "bad/huge_declared_size.tar": (2, {"00002": "truncated"}, ["truncated"]),
    "bad/concatenated.tar": (6, {f"{n:05d}": "duplicate_key" for n in range(6)}, []),
    "bad/empty_archive.tar": (0, {}, []),
    "bad/zero_bytes.tar": (0, {}, ["not_a_tar"]),
    "bad/not_a_tar.tar": (0, {}, ["not_a_tar"]),
    "bad/html_error.tar": (0, {}, ["not_a_tar"]),
    "bad/gzipped_named_tar.tar": (6, {}, []),
    "bad/good.tar.gz": (6, {}, []),
    # bad/truncated.parquet happens to lie where a companion would
    "bad/truncated.tar.gz": (3, {"00003": "truncated"}, ["truncated", "corrupt"]),
    "torture_mix.tar": (121, {}, []),
}
PARQUETS = {
    "hf_images-00000-of-00001.parquet": (12, {}, []),
    "plain_binary.parquet": (12, {}, []),
    "hf_paths_only.parquet": (4, {}, []),
    "bad/hf_nulls.parquet": (4, {"1": "missing_file", "2": "missing_image"}, []),
    "bad/image_is_plain_binary.parquet": (2, {}, []),
    "bad/image_is_string_path.parquet": (
        0,
        {"photos/a.jpg": "missing_file", "photos/b.jpg": "missing_file"},
        [],
    ),
    "bad/list_of_images.parquet": (3, {"2/0": "missing_image"}, []),
    "bad/zero_rows.parquet": (0, {}, []),
    "bad/truncated.parquet": (0, {}, ["corrupt"]),
    "bad/corrupt_page.parquet": (12, {}, []),
    "bad/not_a.parquet": (0, {}, ["corrupt"]),
    "bad/same_path_every_row.parquet": (4, {}, []),
    "bad/one_row_per_group.parquet": (12, {}, []),
}
LISTINGS = {
    "url_list.parquet": (11, {"file://photos/obama_480p.jpg": "missing_file"}, []),
}
COCOS = {
    "coco/annotations.json": (11, {}, []),
    "bad/coco_bad.json": (11, {"does_not_exist.jpg": "missing_file"}, ["unknown_image"]),
}
REFUSED = {"bad/hf_no_image_column.parquet": "'text', 'id'"}
"""Shards that a job over them alone refuses, with what the message names."""

NO_SHARDS = {"img2dataset/00000.parquet", "img2dataset/00000_stats.json"}
"""Files beside a shard."""

Outcome = tuple[int, dict[str, str], list[str]]
"""Good samples, reason by key of the others, and damage that belongs to no sample."""


def outcomes() -> Iterator[tuple[str, str, Outcome]]:
    for source_format, table in (
        ("webdataset", TARS),
        ("parquet", PARQUETS),
        ("listing", LISTINGS),
        ("coco", COCOS),
    ):
        for name, outcome in table.items():
            yield source_format, name, outcome


def root_of(name: str, shards: Path) -> str | None:
    """Where the images of a shard lie that has none itself; None for beside it."""
    if name == "url_list.parquet":
        return str(shards.parent)
    images = shards / "coco" / "images"
    return str(images) if name.endswith(".json") or name == "hf_paths_only.parquet" else None


def test_every_file_of_the_manifest_has_an_outcome_here(shared: Path) -> None:
    manifest = json.loads((shared / "shards" / "manifest.json").read_text())
    named = {name for _, name, _ in outcomes()} | set(REFUSED) | NO_SHARDS
    assert named == {item["file"] for item in manifest["files"]}


@pytest.mark.parametrize(("source_format", "name", "outcome"), list(outcomes()))
def test_shard_has_the_outcome_it_asks_for(
    shared: Path, source_format: str, name: str, outcome: Outcome
) -> None:
    num_good, bad, damage = outcome
    shards = shared / "shards"
    samples, problems = read_shard(shards / name, source_format, root=root_of(name, shards))
    assert len(good_keys(samples)) == num_good
    assert reasons(samples) == {key: f"source.{reason}" for key, reason in bad.items()}
    assert [problem.reason for problem in problems] == [f"source.{reason}" for reason in damage]


@pytest.mark.parametrize(("name", "message"), list(REFUSED.items()))
def test_a_shard_without_images_is_refused_with_its_columns(
    shared: Path, name: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_shard(shared / "shards" / name, "parquet")


def test_one_pattern_over_every_tar_reads_on_whatever_it_meets(shared: Path) -> None:
    source = make_source(
        SourceSpec(format="webdataset", uri=str(shared / "shards" / "bad" / "*.tar"))
    )
    shards = list(source.plan())
    items = [item for shard in shards for item in source.read(shard)]
    assert len(shards) == 25
    assert sum(isinstance(item, Sample) for item in items) == 82


def test_odd_boxes_of_a_coco_file_are_passed_on(shared: Path) -> None:
    path = shared / "shards" / "bad" / "coco_bad.json"
    samples, _ = read_shard(path, "coco", root=root_of(str(path), shared / "shards"))
    boxes = next(item.boxes for item in samples if item.key == "coco_000000000785.jpg")
    assert boxes is not None and boxes.shape == (5, 4)
