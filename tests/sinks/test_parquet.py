"""Tables: pinned schemas, and files that DuckDB and pyarrow read without this package."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sapiens_batch.errors import SpecError
from sapiens_batch.records import ColumnField, Level
from sapiens_batch.sinks import parquet
from tests.sinks.schemas import ALL, EMBEDDING, POSE

IMAGES = parquet.table_schema(Level.IMAGE, ALL, ["caption"])
PERSONS = parquet.table_schema(Level.PERSON, ALL)
KEYPOINTS = np.arange(30, dtype=np.float32).reshape(3, 5, 2)


def persons(indices: list[int], numbers: list[int] | None = None) -> pa.Table:
    num = len(indices)
    boxes = np.tile(np.array([1.5, 2, 30, 40], np.float32), (num, 1))
    present = np.array([index != 1 for index in indices], bool)
    points = KEYPOINTS[np.array(indices, int) % 3]
    values: dict[str, Any] = {
        "key": pa.array([f"k{index}" for index in indices], pa.string()),
        "shard_id": pa.array(["ab" * 16] * num, pa.string()),
        "index": pa.array(indices, pa.int64()),
        "person": pa.array(numbers or [0] * num, pa.int32()),
        "bbox": parquet.column_array(ColumnField("bbox", "float32", (4,)), boxes),
        "bbox_score": pa.array([None] * num, pa.float32()),
        "status": pa.array(["ok"] * num),
        "reason": pa.nulls(num, pa.string()),
        "keypoints": parquet.column_array(POSE.columns[0], points, present),
        "keypoint_scores": parquet.column_array(POSE.columns[1], points[..., 0], present),
    }
    return pa.Table.from_arrays([values[name] for name in PERSONS.names], schema=PERSONS)


def images(indices: list[int]) -> pa.Table:
    num = len(indices)
    values = {name: pa.nulls(num, IMAGES.field(name).type) for name in IMAGES.names}
    values |= {
        "key": pa.array([f"k{index}" for index in indices]),
        "shard_id": pa.array(["ab" * 16] * num),
        "index": pa.array(indices, pa.int64()),
        "status": pa.array(["ok"] * num),
        "num_persons": pa.array([0] * num, pa.int32()),
        "embedding": parquet.column_array(
            EMBEDDING.columns[0], np.tile(np.array([1, 0.5, -2, 0], np.float16), (num, 1))
        ),
    }
    return pa.Table.from_arrays([values[name] for name in IMAGES.names], schema=IMAGES)


def test_the_schemas_are_written_down() -> None:
    assert [f"{field.name}: {field.type}{'' if field.nullable else '!'}" for field in IMAGES] == [
        "key: string!",
        "shard_id: string!",
        "index: int64!",
        "status: string!",
        "reason: string",
        "message: string",
        "height: int32",
        "width: int32",
        "orientation: int8",
        "content_sha256: string",
        "decoder: string",
        "animated: bool",
        "colour_profile: string",
        "num_persons: int32!",
        "persons_truncated: bool",
        "caption: string",
        "seg_row: int64",
        "seg_array: string",
        "seg_height: int32",
        "seg_width: int32",
        "seg_affine: fixed_size_list<element: double>[4]",
        "normal_row: int64",
        "normal_array: string",
        "normal_height: int32",
        "normal_width: int32",
        "normal_affine: fixed_size_list<element: double>[4]",
        "embedding: fixed_size_list<element: halffloat>[4]",
    ]
    assert [f"{field.name}: {field.type}{'' if field.nullable else '!'}" for field in PERSONS] == [
        "key: string!",
        "shard_id: string!",
        "index: int64!",
        "person: int32!",
        "bbox: fixed_size_list<element: float>[4]!",
        "bbox_score: float",
        "status: string!",
        "reason: string",
        "keypoints: fixed_size_list<element: fixed_size_list<element: float>[2]>[5]",
        "keypoint_scores: fixed_size_list<element: float>[5]",
    ]


def test_the_footer_explains_the_file(tmp_path: Path) -> None:
    path = tmp_path / "persons.parquet"
    path.write_bytes(parquet.encode(persons([0])))
    footer = json.loads(pq.read_metadata(path).metadata[b"sapiens_batch"])
    assert footer["format_version"] == 1
    assert footer["table"] == "persons"
    assert footer["conventions"]["boxes"].startswith("COCO xywh")
    assert footer["columns"]["keypoints"] == {
        "unit": "px",
        "description": "(x, y) in source pixels",
    }
    assert footer["labels"]["pose"]["metadata"]["skeleton"]["names"] == ["a", "b", "c", "d", "e"]
    assert "seg" not in footer["labels"]


def test_pyarrow_reads_back_what_was_encoded() -> None:
    table = persons([0, 1, 2])
    found = pq.read_table(io.BytesIO(parquet.encode(table)))
    assert found.schema.equals(PERSONS, check_metadata=True)
    assert found.equals(table)
    assert found["keypoints"][1].as_py() is None
    assert found["keypoints"][0].as_py() == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


def test_duckdb_reads_every_column_type(tmp_path: Path) -> None:
    people, pictures = tmp_path / "persons.parquet", tmp_path / "images.parquet"
    people.write_bytes(parquet.encode(persons([0, 1, 2])))
    pictures.write_bytes(parquet.encode(images([0, 1])))
    rows = duckdb.sql(f"select key, bbox, keypoints[2], keypoint_scores from '{people}'").fetchall()
    assert rows == [
        ("k0", [1.5, 2.0, 30.0, 40.0], [2.0, 3.0], [0.0, 2.0, 4.0, 6.0, 8.0]),
        ("k1", [1.5, 2.0, 30.0, 40.0], None, None),
        ("k2", [1.5, 2.0, 30.0, 40.0], [22.0, 23.0], [20.0, 22.0, 24.0, 26.0, 28.0]),
    ]
    rows = duckdb.sql(f"select status, embedding, seg_affine, seg_row from '{pictures}'").fetchall()
    assert rows == [("ok", [1.0, 0.5, -2.0, 0.0], None, None)] * 2


def test_floats_take_no_dictionary_and_are_split_by_byte() -> None:
    encoded = pq.ParquetFile(io.BytesIO(parquet.encode(persons([0, 2]))))
    group = encoded.metadata.row_group(0)
    encodings = {
        group.column(i).path_in_schema: set(group.column(i).encodings)
        for i in range(group.num_columns)
    }
    assert "BYTE_STREAM_SPLIT" in encodings["keypoints.list.element.list.element"]
    assert "BYTE_STREAM_SPLIT" in encodings["bbox.list.element"]
    assert "RLE_DICTIONARY" not in encodings["keypoints.list.element.list.element"]
    assert "RLE_DICTIONARY" in encodings["shard_id"]
    assert {group.column(i).compression for i in range(group.num_columns)} == {"ZSTD"}


def test_row_groups_are_bounded_in_rows() -> None:
    table = images(list(range(70_000)))
    metadata = pq.ParquetFile(io.BytesIO(parquet.encode(table))).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [
        65_536,
        4_464,
    ]


def test_a_table_without_rows_keeps_its_schema() -> None:
    found = parquet.decode(parquet.encode(persons([])))
    assert found.num_rows == 0
    assert found.schema.equals(PERSONS, check_metadata=True)


def test_a_source_column_may_not_take_the_name_of_a_label() -> None:
    with pytest.raises(SpecError, match=r"source\.columns: seg_row, status would be twice"):
        parquet.table_schema(Level.IMAGE, ALL, ["status", "seg_row"])


def test_values_come_back_from_columns_with_nulls() -> None:
    present = np.array([True, False, True])
    column = parquet.column_array(POSE.columns[0], KEYPOINTS, present)
    values, found = parquet.column_values(pa.chunked_array([column.slice(0, 1), column.slice(1)]))
    assert found.tolist() == [True, False, True]
    np.testing.assert_array_equal(values[[0, 2]], KEYPOINTS[[0, 2]])
    assert not values[1].any()
    assert values.dtype == np.float32
