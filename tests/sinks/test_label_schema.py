"""Label schemas as JSON."""

from __future__ import annotations

import json
import math

import pytest

from sapiens_batch.errors import ProtocolError
from sapiens_batch.records import ArrayField, ColumnField, LabelSchema, Level
from sapiens_batch.sinks import label_schema as schema

SEG = LabelSchema(
    "seg",
    Level.IMAGE,
    (ColumnField("seg_classes", "int32", (29,), "px", "pixels per class"),),
    ArrayField((1024, 768), "uint8", 255, ("y", "x"), "zstd", "", "class of each pixel"),
    {"vocabulary": ["Background", "Apparel"], "model": {"id": "demo"}},
)
NORMAL = LabelSchema(
    "normal",
    Level.IMAGE,
    (),
    ArrayField((3, 8, 6), "float16", math.nan, ("channel", "y", "x"), "blosc"),
    {},
)


def test_a_label_schema_survives_json() -> None:
    assert schema.from_json(json.loads(json.dumps(schema.to_json(SEG)))) == SEG


def test_nan_is_written_as_zarr_writes_it() -> None:
    value = json.loads(json.dumps(schema.to_json(NORMAL), allow_nan=False))
    assert value["array"]["fill_value"] == "NaN"
    found = schema.from_json(value)
    assert found.array is not None
    assert math.isnan(found.array.fill_value)
    assert found.array.row_shape == (3, 8, 6)


@pytest.mark.parametrize("name", ["task", "level", "columns", "array", "metadata"])
def test_a_missing_field_is_reported(name: str) -> None:
    value = schema.to_json(SEG)
    del value[name]
    with pytest.raises(ProtocolError, match=name):
        schema.from_json(value)


def test_an_unknown_field_is_reported() -> None:
    value = schema.to_json(SEG)
    value["columns"][0]["colour"] = "red"
    with pytest.raises(ProtocolError, match="colour"):
        schema.from_json(value)
