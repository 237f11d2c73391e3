"""One sample's labels as JSON values or Arrow rows: table columns as the job has them.

Array columns (`<task>_row` and its frame) are left out: they point into the job's own arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sapiens_batch.export.base import Labeled
from sapiens_batch.labelset import LabelSet
from sapiens_batch.records import ColumnField, Level

IMAGE_COLUMNS = ("status", "height", "width", "content_sha256", "num_persons")
_PERSON = (
    ColumnField("person", "int32"),
    ColumnField("bbox", "float32", (4,)),
    ColumnField("bbox_score", "float32"),
)


def label_columns(labels: LabelSet, level: Level) -> tuple[ColumnField, ...]:
    """Label columns of a table that mean something outside the job directory."""
    found = [
        column
        for schema in labels.schemas.values()
        if schema.level is level
        for column in schema.columns
    ]
    return (*_PERSON, *found) if level is Level.PERSON else tuple(found)


def image_values(labels: LabelSet, sample: Labeled) -> dict[str, Any]:
    """Identity, size, status, source columns and label columns of a sample."""
    row = sample.labels.row
    named = (*IMAGE_COLUMNS, *labels.job.extra_columns)
    own = {name: row[name] for name in named}
    columns = label_columns(labels, Level.IMAGE)
    return {**sample.identity, **own, **{one.name: row[one.name] for one in columns}}


def person_values(labels: LabelSet, person: Mapping[str, Any]) -> dict[str, Any]:
    """Box and label columns of a person."""
    return {one.name: person[one.name] for one in label_columns(labels, Level.PERSON)}


def as_json(value: Any) -> Any:
    """Arrays as lists; numbers that are not finite as None, which JSON has."""
    if isinstance(value, np.ndarray):
        return [as_json(one) for one in value.tolist()]
    if isinstance(value, dict):
        return {name: as_json(one) for name, one in value.items()}
    if isinstance(value, list):
        return [as_json(one) for one in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
