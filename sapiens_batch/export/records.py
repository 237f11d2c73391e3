"""One sample's labels as JSON values or Arrow rows: table columns as the job has them.

Array columns (`<task>_row` and its frame) are left out: they point into the job's own arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from sapiens_batch.labelset import LabelSet
from sapiens_batch.records import ColumnField, Level
from sapiens_batch.sinks.parquet import own_columns

_OWN: Final = {
    Level.IMAGE: (
        "key", "shard_id", "index", "status", "height", "width", "content_sha256", "num_persons",
    ),
    Level.PERSON: ("person", "bbox", "bbox_score"),
}  # fmt: skip


def label_columns(labels: LabelSet, level: Level) -> list[ColumnField]:
    """Columns of tasks that mean something outside the job directory."""
    return [
        column
        for schema in labels.schemas.values()
        if schema.level is level
        for column in schema.columns
    ]


def columns(labels: LabelSet, level: Level) -> list[ColumnField]:
    """The same after those of the samples or persons themselves; persons without their sample's."""
    extra = labels.job.extra_columns
    kept = {*_OWN[level], *extra}
    own = [one for one in own_columns(level, extra) if one.name in kept]
    return [*own, *label_columns(labels, level)]


def values(labels: LabelSet, level: Level, row: Mapping[str, Any]) -> dict[str, Any]:
    """What a row has in `columns`."""
    return {one.name: row[one.name] for one in columns(labels, level)}


def as_lists(found: Mapping[str, Any]) -> dict[str, Any]:
    """Values with arrays as nested lists, which Arrow takes."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in found.items()
    }


def as_json(value: Any) -> Any:
    """Arrays as lists; numbers that are not finite as None, which JSON has."""
    if isinstance(value, np.ndarray):
        return [as_json(one) for one in value.tolist()]
    if isinstance(value, dict):
        return {name: as_json(one) for name, one in value.items()}
    if isinstance(value, list):
        return [as_json(one) for one in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
