"""What a source says about a sample beside the image: boxes, scores and columns to keep.

Takes JSON-like records, wherever they came from. A field that the job asks for and that is absent
or malformed quarantines the sample, because labels made without it would be wrong without a sign;
odd but well-formed boxes (empty, outside, NaN) are passed on for the persons stage to judge.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from sapiens_batch.errors import SampleError
from sapiens_batch.records import Array, Problem, Sample
from sapiens_batch.spec.job import SourceSpec

_BOX_FIELDS = (
    ("bbox",),
    ("x", "y", "width", "height"),
    ("x", "y", "w", "h"),
    ("left", "top", "width", "height"),
)


def needed_fields(spec: SourceSpec, *others: str | None) -> list[str]:
    """Names of the fields that the job asks for, each once; `others` are added to them."""
    names = [spec.boxes, spec.box_scores, *spec.columns, *others]
    return list(dict.fromkeys(name for name in names if name is not None))


def make_sample(
    key: str, index: int, encoded: bytes | Problem, record: Mapping[str, Any], spec: SourceSpec
) -> Sample:
    """A readable sample; a quarantined one without bytes, or if a needed field is no good."""
    if isinstance(encoded, Problem):
        return bad_sample(key, index, encoded)
    try:
        boxes = scores = None
        if spec.boxes is not None:
            boxes = parse_boxes(_needed(record, spec.boxes, key), f"{spec.boxes!r} of {key!r}")
        if spec.box_scores is not None and boxes is not None:
            value = _needed(record, spec.box_scores, key)
            scores = parse_scores(value, len(boxes), f"{spec.box_scores!r} of {key!r}")
    except SampleError as error:
        return bad_sample(key, index, error)
    extra = {name: json_value(record.get(name)) for name in spec.columns}
    return Sample(key, index, encoded, boxes, scores, extra)


def bad_sample(key: str, index: int, why: Problem | SampleError) -> Sample:
    """A sample to be quarantined."""
    return Sample(key, index, None, problem=Problem(why.reason, why.message))


def parse_boxes(value: Any, where: str) -> Array:
    """(P, 4) float32 COCO xywh from lists of numbers, of records with named sides, or one box.

    Text is taken for JSON, which is how boxes stand in a CSV.

    Raises:
        SampleError: `source.bad_boxes`, the value has another form.
    """
    try:
        value = json.loads(value) if isinstance(value, str) else value
        rows = [value] if isinstance(value, Mapping) else value
        rows = [_box_row(row) if isinstance(row, Mapping) else row for row in rows]
        boxes = np.asarray(rows, dtype=np.float32)
    except (TypeError, ValueError, KeyError) as error:
        raise _bad_boxes(where, value) from error
    if boxes.size == 0:
        return np.zeros((0, 4), np.float32)
    if boxes.shape == (4,):
        return boxes.reshape(1, 4)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise _bad_boxes(where, value)
    return boxes


def parse_scores(value: Any, num_boxes: int, where: str) -> Array:
    """(P,) float32 scores for `num_boxes` boxes.

    Raises:
        SampleError: `source.bad_boxes`, the value is no list of so many numbers.
    """
    try:
        value = json.loads(value) if isinstance(value, str) else value
        scores = np.asarray(value, dtype=np.float32).reshape(-1)
    except (TypeError, ValueError) as error:
        raise _bad_boxes(where, value) from error
    if len(scores) != num_boxes:
        raise SampleError(
            "source.bad_boxes", f"{where} has {len(scores)} scores for {num_boxes} boxes"
        )
    return scores


def json_value(value: Any) -> Any:
    """The value as JSON knows it; what JSON does not know (dates, decimals, bytes) as text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): json_value(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(inner) for inner in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)


def _needed(record: Mapping[str, Any], name: str, key: str) -> Any:
    value = record.get(name)
    if value is None:
        raise SampleError(
            "source.missing_boxes",
            f"sample {key!r} has no {name!r}; write an empty list where nobody is in the image",
        )
    return value


def _box_row(row: Mapping[str, Any]) -> Any:
    for names in _BOX_FIELDS:
        if all(name in row for name in names):
            return row["bbox"] if names == ("bbox",) else [row[name] for name in names]
    raise KeyError("bbox")


def _bad_boxes(where: str, value: Any) -> SampleError:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return SampleError(
        "source.bad_boxes", f"{where} is {shown}: boxes are lists of [left, top, width, height]"
    )
