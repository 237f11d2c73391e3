"""Array objects against zarr-python, which must read what we write and write the same bytes."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
import zarr as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec

from sapiens_batch.records import Array, LabelSchema
from sapiens_batch.sinks import zarr
from tests.sinks.schemas import DEPTH, EMBEDDING, NORMAL, SEG

SHARD_ROWS = 4


def labels(schema: LabelSchema, num: int, seed: int = 0) -> Array:
    assert schema.array is not None
    values = np.random.default_rng(seed).integers(0, 29, (num, *schema.array.row_shape))
    return values.astype(schema.array.dtype)


def write_array(root: Path, schema: LabelSchema, rows: dict[int, Array], num_rows: int) -> Path:
    """Store an array of chunks of SHARD_ROWS as the pipeline does."""
    assert schema.array is not None
    for chunk in range(-(-num_rows // SHARD_ROWS)):
        mine = [row for row in sorted(rows) if row // SHARD_ROWS == chunk]
        data = np.array([rows[row] for row in mine], schema.array.dtype)
        data = data.reshape(len(mine), *schema.array.row_shape)
        path = root / "c" / str(chunk) / "/".join(["0"] * len(schema.array.row_shape))
        path.parent.mkdir(parents=True)
        positions = [row % SHARD_ROWS for row in mine]
        path.write_bytes(zarr.encode_shard(schema.array, positions, data, SHARD_ROWS))
    (root / "zarr.json").write_bytes(zarr.array_metadata(schema, num_rows, SHARD_ROWS))
    return root


def reference_array(root: Path, schema: LabelSchema, num_rows: int) -> Any:
    assert schema.array is not None
    field = schema.array
    codec: Any = (
        ZstdCodec(level=1)
        if field.codec == "zstd"
        else BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")
    )
    return reference.create_array(
        root,
        shape=(num_rows, *field.row_shape),
        shards=(SHARD_ROWS, *field.row_shape),
        chunks=(1, *field.row_shape),
        dtype=field.dtype,
        fill_value=field.fill_value,
        compressors=[codec, Crc32cCodec()],
        dimension_names=("row", *field.dimension_names),
        config={"write_empty_chunks": True},
    )


@pytest.mark.parametrize("schema", [SEG, NORMAL, DEPTH], ids=lambda schema: schema.task)
def test_a_full_shard_has_the_bytes_that_zarr_python_writes(
    schema: LabelSchema, tmp_path: Path
) -> None:
    values = labels(schema, 8)
    reference_array(tmp_path / "theirs", schema, 8)[:] = values
    ours = write_array(tmp_path / "ours", schema, dict(enumerate(values)), 8)
    found = sorted(path.relative_to(ours) for path in ours.rglob("c/**/*") if path.is_file())
    assert len(found) == 2
    for path in found:
        assert (ours / path).read_bytes() == (tmp_path / "theirs" / path).read_bytes()


@pytest.mark.parametrize("schema", [SEG, NORMAL, DEPTH], ids=lambda schema: schema.task)
def test_the_array_document_is_the_one_that_zarr_python_writes(
    schema: LabelSchema, tmp_path: Path
) -> None:
    reference_array(tmp_path, schema, 7)
    theirs = json.loads((tmp_path / "zarr.json").read_text())
    ours = json.loads(zarr.array_metadata(schema, 7, SHARD_ROWS))
    attributes = ours.pop("attributes")["sapiens_batch"]
    theirs.pop("attributes")
    assert ours == theirs
    assert attributes["task"] == schema.task
    assert attributes["conventions"]["pixel_centres"].startswith("integers")


@pytest.mark.parametrize("schema", [SEG, NORMAL], ids=lambda schema: schema.task)
def test_zarr_python_alone_reads_an_array_with_absent_rows_and_a_short_end(
    schema: LabelSchema, tmp_path: Path
) -> None:
    values = labels(schema, 7)
    rows = {row: values[row] for row in (0, 2, 3, 6)}
    found = reference.open_array(write_array(tmp_path / "a.zarr", schema, rows, 7), mode="r")
    assert found.shape == (7, *values.shape[1:])
    assert found.dtype == values.dtype
    for row in range(7):
        expected = values[row] if row in rows else np.full_like(values[0], found.fill_value)
        np.testing.assert_array_equal(found[row], expected)


def test_zarr_python_reads_a_chunk_without_labeled_rows_as_fill(tmp_path: Path) -> None:
    found = reference.open_array(write_array(tmp_path / "a.zarr", SEG, {}, 3), mode="r")
    assert (found[:] == 255).all()


def test_a_labeled_row_that_equals_the_fill_value_is_present() -> None:
    assert SEG.array is not None
    data = np.full((1, 8, 6), 255, np.uint8)
    encoded = zarr.encode_shard(SEG.array, [2], data, SHARD_ROWS)
    assert zarr.present_rows(encoded, SHARD_ROWS) == [False, False, True, False]
    ((row, values),) = zarr.decode_rows(SEG.array, encoded, SHARD_ROWS)
    assert row == 2
    np.testing.assert_array_equal(values, data[0])
    assert list(zarr.decode_rows(SEG.array, encoded, SHARD_ROWS, [0, 1])) == []


@settings(max_examples=40, deadline=None)
@given(
    present=st.lists(st.booleans(), min_size=1, max_size=9),
    schema=st.sampled_from([SEG, NORMAL, DEPTH]),
    seed=st.integers(0, 2**16),
)
def test_any_presence_survives_encoding(
    present: list[bool], schema: LabelSchema, seed: int
) -> None:
    assert schema.array is not None
    rows = [row for row, here in enumerate(present) if here]
    order = np.random.default_rng(seed).permutation(len(rows))
    values = labels(schema, len(rows), seed)
    encoded = zarr.encode_shard(schema.array, [rows[i] for i in order], values[order], len(present))
    assert zarr.present_rows(encoded, len(present)) == present
    assert encoded == zarr.encode_shard(schema.array, rows, values, len(present))
    found = dict(zarr.decode_rows(schema.array, encoded, len(present)))
    assert list(found) == rows
    for position, row in enumerate(rows):
        np.testing.assert_array_equal(found[row], values[position])


def test_a_row_is_reached_by_two_ranges() -> None:
    assert NORMAL.array is not None
    values = labels(NORMAL, 3)
    encoded = zarr.encode_shard(NORMAL.array, [0, 1, 3], values, SHARD_ROWS)
    index = zarr.parse_index(encoded[-zarr.index_size(SHARD_ROWS) :], SHARD_ROWS)
    start, stop = zarr.row_range(index, 3) or (0, 0)
    np.testing.assert_array_equal(zarr.decode_inner(NORMAL.array, encoded[start:stop]), values[2])
    assert zarr.row_range(index, 2) is None


def test_damage_of_the_index_is_noticed() -> None:
    assert SEG.array is not None
    encoded = bytearray(zarr.encode_shard(SEG.array, [0], labels(SEG, 1), SHARD_ROWS))
    encoded[-10] ^= 1
    with pytest.raises(ValueError, match="checksum"):
        zarr.present_rows(bytes(encoded), SHARD_ROWS)
    with pytest.raises(ValueError, match="ends with 68 bytes, got 5"):
        zarr.present_rows(b"short", SHARD_ROWS)


@pytest.mark.parametrize("schema", [SEG, NORMAL], ids=lambda schema: schema.task)
def test_a_row_that_cannot_be_decoded_is_a_value_error(schema: LabelSchema) -> None:
    assert schema.array is not None
    piece = b"\x00" * 40
    crc = google_crc32c.value(piece).to_bytes(4, "little")
    with pytest.raises(ValueError, match="an inner chunk of 44 bytes cannot be decoded"):
        zarr.decode_inner(schema.array, piece + crc)


@pytest.mark.parametrize("schema", [SEG, NORMAL], ids=lambda schema: schema.task)
def test_no_changed_bit_of_a_row_is_decoded_by_us_or_by_zarr_python(
    schema: LabelSchema, tmp_path: Path
) -> None:
    assert schema.array is not None
    root = write_array(tmp_path / "a.zarr", schema, {0: labels(schema, 1)[0]}, 1)
    (path,) = (one for one in root.rglob("c/**/*") if one.is_file())
    encoded = path.read_bytes()
    num_bits = 8 * (len(encoded) - zarr.index_size(SHARD_ROWS))
    for bit in random.Random(0).sample(range(num_bits), 40):
        changed = bytearray(encoded)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="wrong checksum"):
            dict(zarr.decode_rows(schema.array, bytes(changed), SHARD_ROWS))
        path.write_bytes(changed)
        with pytest.raises(ValueError, match="checksum do not match"):
            reference.open_array(root, mode="r")[0]


@pytest.mark.parametrize(
    ("rows", "data", "message"),
    [
        ([0], np.zeros((2, 8, 6), np.uint8), r"uint8 \(2, 8, 6\), expected uint8 \(1, 8, 6\)"),
        ([0], np.zeros((1, 8, 6), np.int64), "int64"),
        ([0, 0], np.zeros((2, 8, 6), np.uint8), "repeat or lie outside"),
        ([4], np.zeros((1, 8, 6), np.uint8), "repeat or lie outside a shard of 4 rows"),
        ([-1], np.zeros((1, 8, 6), np.uint8), "repeat or lie outside"),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows: list[int], data: Array, message: str) -> None:
    assert SEG.array is not None
    with pytest.raises(ValueError, match=message):
        zarr.encode_shard(SEG.array, rows, data, SHARD_ROWS)


def test_a_task_without_an_array_has_no_array_document() -> None:
    with pytest.raises(ValueError, match="embedding has no array"):
        zarr.array_metadata(EMBEDDING, 1, 1)
