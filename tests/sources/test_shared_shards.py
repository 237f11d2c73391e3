"""Every ready and damaged shard of the shared collection gets the outcome it asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapiens_batch.errors import InputError
from sapiens_batch.job.spec import SourceSpec
from sapiens_batch.records import Problem, Sample
from sapiens_batch.sources import make_source
from tests.sources.corpora import good_keys, read_shard, reasons

TARS = {
    "img2dataset/00000.tar": (12, {}, []),
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
    "bad/truncated.tar.gz": (3, {"00003": "truncated"}, ["truncated"]),
}
PARQUETS = {
    "hf_images-00000-of-00001.parquet": (12, {}, []),
    "plain_binary.parquet": (12, {}, []),
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
Outcome = tuple[int, dict[str, str], list[str]]


@pytest.mark.parametrize(
    ("source_format", "name", "outcome"),
    [("webdataset", *item) for item in TARS.items()]
    + [("parquet", *item) for item in PARQUETS.items()],
)
def test_shard_has_the_outcome_it_asks_for(
    shared: Path, source_format: str, name: str, outcome: Outcome
) -> None:
    num_good, bad, damage = outcome
    samples, problems = read_shard(shared / "shards" / name, source_format)
    assert len(good_keys(samples)) == num_good
    assert reasons(samples) == {key: f"source.{reason}" for key, reason in bad.items()}
    assert [problem.reason for problem in problems] == [f"source.{reason}" for reason in damage]


def test_torture_tar_gives_all_its_samples(shared: Path) -> None:
    samples, problems = read_shard(shared / "shards" / "torture_mix.tar")
    assert len(samples) == 121
    assert set(reasons(samples).values()) <= {"source.missing_image"}
    assert problems == []


def test_paths_in_hugging_face_structs_are_found_below_the_root(shared: Path) -> None:
    path = shared / "shards" / "hf_paths_only.parquet"
    samples, _ = read_shard(path, "parquet", root=str(shared / "shards" / "coco" / "images"))
    assert len(good_keys(samples)) == 4


def test_a_parquet_without_images_is_refused_with_its_columns(shared: Path) -> None:
    with pytest.raises(InputError, match="'text', 'id'"):
        read_shard(shared / "shards" / "bad" / "hf_no_image_column.parquet", "parquet")


def test_one_pattern_over_every_tar_reads_on_whatever_it_meets(shared: Path) -> None:
    source = make_source(
        SourceSpec(format="webdataset", uri=str(shared / "shards" / "bad" / "*.tar"))
    )
    shards = list(source.plan())
    items = [item for shard in shards for item in source.read(shard)]
    assert len(shards) == 25
    assert sum(isinstance(item, Sample) for item in items) == 82


def test_bad_coco_file_keeps_boxes_and_reports_what_is_missing(shared: Path) -> None:
    folder = shared / "shards"
    spec = SourceSpec(
        format="coco",
        uri=str(folder / "bad" / "coco_bad.json"),
        root=str(folder / "coco" / "images"),
    )
    source = make_source(spec)
    (shard,) = source.plan()
    items = list(source.read(shard))
    samples = {item.key: item for item in items if isinstance(item, Sample)}
    assert len(samples) == 12
    missing = samples.pop("does_not_exist.jpg")
    assert missing.problem is not None and missing.problem.reason == "source.missing_file"
    boxes = samples["coco_000000000785.jpg"].boxes
    assert boxes is not None and boxes.shape == (5, 4)
    assert [item.reason for item in items if isinstance(item, Problem)] == ["source.unknown_image"]
