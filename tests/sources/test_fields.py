"""Boxes, scores and kept columns of JSON-like records."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from sapiens_batch.errors import SampleError
from sapiens_batch.sources.fields import json_value, parse_boxes, parse_scores


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([], []),
        ([[1, 2, 3, 4]], [[1, 2, 3, 4]]),
        ([1, 2, 3, 4], [[1, 2, 3, 4]]),
        ({"x": 1, "y": 2, "w": 3, "h": 4}, [[1, 2, 3, 4]]),
        ([{"left": 1, "top": 2, "width": 3, "height": 4}], [[1, 2, 3, 4]]),
        ([{"bbox": [1, 2, 3, 4], "id": 9}], [[1, 2, 3, 4]]),
        ([[-5, 0, 0, -1]], [[-5, 0, 0, -1]]),
    ],
)
def test_boxes_of_every_form_become_xywh_rows(value: Any, expected: list[Any]) -> None:
    boxes = parse_boxes(value, "boxes")
    assert boxes.dtype == np.float32
    assert boxes.shape == (len(expected), 4)
    assert boxes.tolist() == expected


def test_a_null_coordinate_is_a_nan_for_the_persons_stage_to_judge() -> None:
    assert np.isnan(parse_boxes([[1, 2, None, 4]], "boxes")[0, 2])


@pytest.mark.parametrize("value", [3, "abc", [[1, 2, 3]], [[1, 2, 3, 4], [1]], [{"x": 1}], [None]])
def test_other_forms_are_refused_with_the_value(value: Any) -> None:
    with pytest.raises(SampleError, match="boxes of '7'") as caught:
        parse_boxes(value, "boxes of '7'")
    assert caught.value.reason == "source.bad_boxes"


def test_scores_must_be_as_many_as_boxes() -> None:
    assert parse_scores([0.5, 1], 2, "scores").tolist() == [0.5, 1.0]
    with pytest.raises(SampleError, match="1 scores for 2 boxes"):
        parse_scores([0.5], 2, "scores")


def test_kept_values_are_json_values() -> None:
    value = {"a": (1, None), "b": Decimal("1.5"), "c": b"\xff"}
    assert json_value(value) == {"a": [1, None], "b": "1.5", "c": "\\xff"}
