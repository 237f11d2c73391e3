"""Reading images, keys and boxes from Parquet columns."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sapiens_batch.errors import InputError
from sapiens_batch.records import Problem, Sample
from sapiens_batch.sources import make_source
from sapiens_batch.spec.job import SourceSpec
from tests.conformance.source_contract import SourceContract
from tests.sources.corpora import good_keys, read_shard, reasons

STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def read_table(
    folder: Path, table: pa.Table, **fields: object
) -> tuple[list[Sample], list[Problem]]:
    path = folder / "shard.parquet"
    pq.write_table(table, path)
    return read_shard(path, "parquet", **fields)


class TestParquetSource(SourceContract):
    SHARD_KEYS = ("p0.parquet", "p1.parquet")
    SAMPLE_KEYS = (("k0", "k1", "k2"), ("k0",))

    def write_corpus(self, folder: Path) -> None:
        first = pa.table({"jpg": [b"a", None, b"c"], "__key__": ["k0", "k1", "k2"]})
        pq.write_table(first, folder / "p0.parquet", row_group_size=2)
        pq.write_table(pa.table({"jpg": [b"d"], "__key__": ["k0"]}), folder / "p1.parquet")

    def spec(self, folder: Path) -> SourceSpec:
        return SourceSpec(format="parquet", uri=f"{folder}/p*.parquet")


def test_hugging_face_structs_give_bytes_or_follow_the_path(tmp_path: Path) -> None:
    (tmp_path / "b.jpg").write_bytes(b"from file")
    cells = [
        {"bytes": b"inline", "path": "a.jpg"},
        {"bytes": None, "path": "b.jpg"},
        {"bytes": None, "path": "c.jpg"},
        None,
        {"bytes": b"", "path": None},
    ]
    samples, problems = read_table(tmp_path, pa.table({"image": pa.array(cells, STRUCT)}))
    assert [sample.encoded for sample in samples] == [b"inline", b"from file", None, None, b""]
    assert reasons(samples) == {"2": "source.missing_file", "3": "source.missing_image"}
    assert problems == []


def test_paths_are_keys_only_where_they_are_unique(tmp_path: Path) -> None:
    unique = pa.array([{"bytes": b"1", "path": "x/1"}, {"bytes": b"2", "path": "y/1"}], STRUCT)
    assert good_keys(read_table(tmp_path, pa.table({"image": unique}))[0]) == ["x/1", "y/1"]
    same = pa.array([{"bytes": b"1", "path": "s"}, {"bytes": b"2", "path": "s"}], STRUCT)
    assert good_keys(read_table(tmp_path, pa.table({"image": same}))[0]) == ["0", "1"]


def test_string_columns_are_paths_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a.jpg").write_bytes(b"A")
    table = pa.table({"image": ["a.jpg", "missing.jpg"]})
    samples, _ = read_table(tmp_path, table, root=str(tmp_path / "root"))
    assert [(sample.key, sample.encoded) for sample in samples] == [
        ("a.jpg", b"A"),
        ("missing.jpg", None),
    ]


def test_a_list_column_gives_one_sample_an_image(tmp_path: Path) -> None:
    one, two = {"bytes": b"1", "path": None}, {"bytes": b"2", "path": None}
    column = pa.array([[one], [one, two], []], pa.list_(STRUCT))
    samples, _ = read_table(tmp_path, pa.table({"images": column}))
    assert [sample.key for sample in samples] == ["0/0", "1/0", "1/1", "2/0"]
    assert [sample.index for sample in samples] == [0, 1, 2, 3]
    assert reasons(samples) == {"2/0": "source.missing_image"}


def test_several_image_columns_give_a_sample_each(tmp_path: Path) -> None:
    table = pa.table(
        {
            "left": pa.array([b"l0", b"l1"]),
            "right": pa.array([b"r0", None], pa.binary()),
            "uid": ["x", "y"],
            "more": pa.array([[b"m0", b"m1"], []], pa.list_(pa.binary())),
        }
    )
    samples, _ = read_table(tmp_path, table, image=["left", "right"], key="uid", columns=["uid"])
    assert [(sample.key, sample.encoded) for sample in samples] == [
        ("x/left", b"l0"),
        ("x/right", b"r0"),
        ("y/left", b"l1"),
        ("y/right", None),
    ]
    assert [sample.index for sample in samples] == [0, 1, 2, 3]
    assert samples[1].extra == {"uid": "x"}
    assert reasons(samples) == {"y/right": "source.missing_image"}
    samples, _ = read_table(tmp_path, table, image=["left", "more"])
    assert [sample.key for sample in samples] == [
        "0/left", "0/more/0", "0/more/1", "1/left", "1/more/0",
    ]  # fmt: skip
    with pytest.raises(InputError, match="cannot say which image its boxes belong to"):
        read_table(tmp_path, table, image=["left", "right"], boxes="uid")
    with pytest.raises(InputError, match="no image column 'top': it has 'left'"):
        read_table(tmp_path, table, image=["left", "top"])


@pytest.mark.parametrize("column_type", [pa.binary_view(), pa.large_binary()])
def test_every_arrow_type_of_bytes_holds_images(tmp_path: Path, column_type: pa.DataType) -> None:
    samples, _ = read_table(tmp_path, pa.table({"jpg": pa.array([b"a", None], column_type)}))
    assert [sample.encoded for sample in samples] == [b"a", None]


@pytest.mark.parametrize(
    "boxes",
    [
        [[[1.0, 2.0, 3.0, 4.0]], []],
        [[{"x": 1.0, "y": 2.0, "width": 3.0, "height": 4.0}], []],
        [[{"bbox": [1.0, 2.0, 3.0, 4.0]}], []],
    ],
)
def test_boxes_may_be_lists_or_structs(tmp_path: Path, boxes: list[Any]) -> None:
    table = pa.table({"jpg": [b"a", b"b"], "boxes": boxes, "when": [date(2020, 1, 2)] * 2})
    samples, _ = read_table(tmp_path, table, boxes="boxes", columns=["when"])
    assert [sample.boxes.tolist() for sample in samples if sample.boxes is not None] == [
        [[1, 2, 3, 4]],
        [],
    ]
    assert all(sample.boxes is not None and sample.boxes.dtype == np.float32 for sample in samples)
    assert samples[0].extra == {"when": "2020-01-02"}


def test_null_and_repeated_keys_are_quarantined(tmp_path: Path) -> None:
    table = pa.table({"jpg": [b"a", b"b", b"c"], "uid": [7, None, 7]})
    samples, _ = read_table(tmp_path, table, key="uid")
    assert [sample.key for sample in samples] == ["7", "1", "7"]
    found = [sample.problem and sample.problem.reason for sample in samples]
    assert found == [None, "source.missing_key", "source.duplicate_key"]


@pytest.mark.parametrize(
    ("table", "fields", "message"),
    [
        ({"text": ["a"]}, {}, r"no column that looks like images.*'text'"),
        ({"a": [b"1"], "b": [b"2"]}, {}, r"several columns.*'a', 'b'"),
        ({"jpg": [b"1"]}, {"image": ["png"]}, r"no image column 'png'.*'jpg'"),
        ({"jpg": [b"1"]}, {"boxes": "boxes"}, r"no column 'boxes'.*'jpg'"),
        ({"jpg": [1]}, {"image": ["jpg"]}, r"int64, which cannot hold images"),
    ],
)
def test_a_missing_column_is_refused_while_planning(
    tmp_path: Path, table: dict[str, list[Any]], fields: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_table(tmp_path, pa.table(table), **fields)


def test_the_hugging_face_footer_names_the_image_column(tmp_path: Path) -> None:
    features = {"info": {"features": {"photo": {"_type": "Image"}, "mask": {"_type": "Value"}}}}
    table = pa.table({"mask": [b"m"], "photo": [b"p"]})
    table = table.replace_schema_metadata({"huggingface": json.dumps(features)})
    samples, _ = read_table(tmp_path, table)
    assert [sample.encoded for sample in samples] == [b"p"]


def test_a_later_shard_without_the_column_is_a_problem_of_that_shard(tmp_path: Path) -> None:
    pq.write_table(pa.table({"jpg": [b"a"]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"png": [1]}), tmp_path / "1.parquet")
    source = make_source(
        SourceSpec(format="parquet", uri=str(tmp_path / "*.parquet"), image=["jpg"])
    )
    items = [item for shard in source.plan() for item in source.read(shard)]
    assert isinstance(items[0], Sample)
    assert isinstance(items[1], Problem)
    assert items[1].reason == "source.missing_column"
    assert "1.parquet" in items[1].message


def test_a_damaged_row_group_loses_its_own_rows_only(tmp_path: Path) -> None:
    path = tmp_path / "shard.parquet"
    images = [bytes([65 + row]) * 50_000 for row in range(9)]
    table = pa.table({"jpg": images, "key": [f"k{row}" for row in range(9)]})
    pq.write_table(table, path, row_group_size=3, compression="none", use_dictionary=False)
    column = pq.ParquetFile(path).metadata.row_group(1).column(0)
    content = bytearray(path.read_bytes())
    start = column.data_page_offset
    content[start : start + 40] = b"\xff" * 40
    path.write_bytes(bytes(content))
    samples, problems = read_shard(path, "parquet")
    assert [sample.index for sample in samples] == list(range(9))
    assert good_keys(samples) == ["k0", "k1", "k2", "k6", "k7", "k8"]
    assert reasons(samples) == dict.fromkeys(("3", "4", "5"), "source.corrupt")
    assert [problem.reason for problem in problems] == ["source.corrupt"]
    assert "row group 1" in problems[0].message


@pytest.mark.parametrize("content", [b"", b"PAR1", b"<html></html>" * 10, b"PAR1" + b"x" * 90])
def test_what_is_no_parquet_is_one_problem(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.parquet").write_bytes(content)
    samples, problems = read_shard(tmp_path / "x.parquet", "parquet")
    assert samples == []
    assert [problem.reason for problem in problems] == ["source.corrupt"]
