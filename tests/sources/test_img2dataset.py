"""Tars with the Parquet that img2dataset writes beside them, and its Parquet output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sapiens_batch.errors import InputError
from sapiens_batch.records import Problem, Sample
from sapiens_batch.sources import make_source
from sapiens_batch.spec.job import SourceSpec
from tests.conformance.source_contract import SourceContract
from tests.sources.corpora import read_shard, tar_bytes

ROWS = {
    "key": ["000000000", "000000001", "000000002"],
    "caption": ["a cat", None, "a man"],
    "status": ["success", "failed_to_download", "success"],
    "error_message": [None, "HTTP Error 404: Not Found", None],
}
MEMBERS = [
    ("000000000.jpg", b"0"),
    ("000000000.json", b'{"caption": "from json", "width": 4}'),
    ("000000002.jpg", b"2"),
    ("000000002.json", b'{"caption": "from json", "width": 5}'),
]


def write_shard(folder: Path, name: str = "00000", **columns: list[Any]) -> Path:
    (folder / f"{name}.tar").write_bytes(tar_bytes(MEMBERS))
    pq.write_table(pa.table({**ROWS, **columns}), folder / f"{name}.parquet")
    return folder / f"{name}.tar"


def facts(problems: list[Problem]) -> list[str]:
    return [problem.reason for problem in problems]


class TestImg2datasetSource(SourceContract):
    SHARD_KEYS = ("00000.tar", "00001.tar")
    SAMPLE_KEYS = (("000000000", "000000002"),) * 2

    def write_corpus(self, folder: Path) -> None:
        write_shard(folder, "00000")
        write_shard(folder, "00001")

    def spec(self, folder: Path) -> SourceSpec:
        return SourceSpec(format="webdataset", uri=f"{folder}/*.tar", columns=["caption", "width"])


def test_columns_come_from_the_companion_and_the_rest_from_the_json(tmp_path: Path) -> None:
    samples, _ = read_shard(write_shard(tmp_path), columns=["caption", "width"])
    assert [sample.extra for sample in samples] == [
        {"caption": "a cat", "width": 4},
        {"caption": "a man", "width": 5},
    ]


def test_failed_downloads_are_counted_and_are_no_samples(tmp_path: Path) -> None:
    samples, problems = read_shard(write_shard(tmp_path))
    assert [sample.key for sample in samples] == ["000000000", "000000002"]
    assert facts(problems) == ["source.not_downloaded"]
    assert "1 rows have no image" in problems[0].message
    assert "1 failed_to_download" in problems[0].message


def test_a_success_that_the_tar_lacks_is_reported_with_its_key(tmp_path: Path) -> None:
    path = write_shard(tmp_path, status=["success"] * 3)
    _, problems = read_shard(path)
    assert facts(problems) == ["source.missing_member"]
    assert "1 rows say 'success'" in problems[0].message
    assert "'000000001'" in problems[0].message


def test_a_companion_that_cannot_be_used_is_reported_and_the_json_serves(tmp_path: Path) -> None:
    path = write_shard(tmp_path)
    (tmp_path / "00000.parquet").write_bytes(b"PAR1")
    samples, problems = read_shard(path, columns=["caption"])
    assert [sample.extra for sample in samples] == [{"caption": "from json"}] * 2
    assert facts(problems) == ["source.corrupt"]


def test_a_parquet_without_keys_is_no_companion_unless_the_job_says_so(tmp_path: Path) -> None:
    path = write_shard(tmp_path)
    pq.write_table(pa.table({"embedding": [1.0]}), tmp_path / "00000.parquet")
    assert read_shard(path)[1] == []
    _, problems = read_shard(path, companion="{stem}.parquet")
    assert facts(problems) == ["source.missing_column"]


def test_repeated_keys_of_a_companion_are_reported_and_the_first_row_counts(tmp_path: Path) -> None:
    path = write_shard(tmp_path, key=["000000000", "x", "000000000"])
    samples, problems = read_shard(path, columns=["caption"])
    assert samples[0].extra == {"caption": "a cat"}
    assert facts(problems) == ["source.duplicate_key", "source.not_downloaded"]


def test_a_companion_may_lie_elsewhere_or_be_left_out(tmp_path: Path) -> None:
    path = write_shard(tmp_path)
    (tmp_path / "meta").mkdir()
    (tmp_path / "00000.parquet").rename(tmp_path / "meta" / "rows-00000.parquet")
    assert read_shard(path)[1] == []
    found = read_shard(path, companion="meta/rows-{stem}.parquet", columns=["caption"])
    assert found[0][0].extra == {"caption": "a cat"}
    write_shard(tmp_path)
    assert read_shard(path, companion="none")[1] == []


def test_a_companion_that_the_job_names_must_exist(tmp_path: Path) -> None:
    path = write_shard(tmp_path)
    spec = SourceSpec(format="webdataset", uri=str(path), companion="{stem}.pq")
    with pytest.raises(InputError, match=r"1 of 1 companions do not exist.*00000\.pq"):
        list(make_source(spec).plan())


def test_a_changed_companion_is_a_changed_shard(tmp_path: Path) -> None:
    source = make_source(SourceSpec(format="webdataset", uri=str(write_shard(tmp_path))))
    (shard,) = source.plan()
    write_shard(tmp_path, caption=["another caption than before", None, None])
    with pytest.raises(InputError, match="has changed since it was planned"):
        list(source.read(shard))
    (again,) = source.plan()
    assert again.shard_id != shard.shard_id


def test_parquet_output_leaves_out_rows_whose_download_failed(tmp_path: Path) -> None:
    table = pa.table({**ROWS, "jpg": pa.array([b"0", None, None], pa.binary())})
    pq.write_table(table, tmp_path / "00000.parquet")
    samples, problems = read_shard(tmp_path / "00000.parquet", "parquet", columns=["caption"])
    assert [(sample.key, sample.index, sample.encoded) for sample in samples] == [
        ("000000000", 0, b"0"),
        ("000000002", 1, None),
    ]
    assert isinstance(samples[1], Sample) and samples[1].problem is not None
    assert samples[1].problem.reason == "source.missing_image"
    assert facts(problems) == ["source.not_downloaded"]


def test_the_shared_shard_has_twelve_samples_and_one_failed_download(shared: Path) -> None:
    path = shared / "shards" / "img2dataset" / "00000.tar"
    samples, problems = read_shard(path, columns=["caption", "sha256"])
    assert len(samples) == 12
    assert samples[11].extra == {
        "caption": "a photo: negative: no person",
        "sha256": "4f6b66beb3718c367299c77f5b771ca0c5dc02b0012b061f4857f25014b3d2a9",
    }
    assert facts(problems) == ["source.not_downloaded"]
