"""Label schemas as JSON, the form in which `job.json` records them.

What the fields mean is defined in `records`. The conversion is lossless, also for NaN fill values,
so that readers need nothing but the job directory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sapiens_batch.errors import ProtocolError
from sapiens_batch.records import ArrayField, ColumnField, LabelSchema, Level


def to_json(schema: LabelSchema) -> dict[str, Any]:
    """The schema as JSON values; NaN becomes the string `NaN` as in Zarr."""
    return {
        "task": schema.task,
        "level": str(schema.level),
        "columns": [column_to_json(column) for column in schema.columns],
        "array": None if schema.array is None else _array_to_json(schema.array),
        "metadata": dict(schema.metadata),
    }


def from_json(value: Mapping[str, Any]) -> LabelSchema:
    """The inverse of `to_json`.

    Raises:
        ProtocolError: A field is missing or unknown.
    """
    try:
        array = value["array"]
        return LabelSchema(
            task=value["task"],
            level=Level(value["level"]),
            columns=tuple(_column_from_json(column) for column in value["columns"]),
            array=None if array is None else _array_from_json(array),
            metadata=value["metadata"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(
            f"job.json: label schema {value.get('task')!r}: {error}; the document is damaged or of "
            "a newer version"
        ) from error


def column_to_json(column: ColumnField) -> dict[str, Any]:
    """One column as JSON values."""
    return {**asdict(column), "shape": list(column.shape)}


def fill_to_json(value: float) -> float | str:
    """A fill value as Zarr writes it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def rows_to_json(field: ArrayField) -> dict[str, int]:
    """`rows_per_sample` where it is not 1, as documents of labels of images have no such entry."""
    return {} if field.rows_per_sample == 1 else {"rows_per_sample": field.rows_per_sample}


def _array_to_json(field: ArrayField) -> dict[str, Any]:
    values = asdict(field)
    del values["rows_per_sample"]
    return {
        **values,
        **rows_to_json(field),
        "row_shape": list(field.row_shape),
        "dimension_names": list(field.dimension_names),
        "fill_value": fill_to_json(field.fill_value),
    }


def _column_from_json(value: Mapping[str, Any]) -> ColumnField:
    return ColumnField(**{**value, "shape": tuple(value["shape"])})


def _array_from_json(value: Mapping[str, Any]) -> ArrayField:
    fill = value["fill_value"]
    return ArrayField(
        **{
            **value,
            "row_shape": tuple(value["row_shape"]),
            "dimension_names": tuple(value["dimension_names"]),
            "fill_value": float(fill) if isinstance(fill, str) else fill,
        }
    )
