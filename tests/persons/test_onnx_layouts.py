"""What the shapes of a graph's outputs may mean."""

from __future__ import annotations

import numpy as np
import pytest

from sapiens_batch.persons.onnx_layouts import (
    Dimension,
    EndToEndLayout,
    PixelRules,
    Port,
    QueryLayout,
    recognise,
)

# 504 cells of strides 8, 16 and 32
SIZE = (128, 192)
RULES = PixelRules("stretched")


def meanings(
    *shape: Dimension, size: tuple[int, int] | None = SIZE, num_names: int | None = None
) -> list[str]:
    port = Port("output0", shape, "tensor(float)")
    return [layout.name for layout in recognise([port], size, num_names, scale=1)]


@pytest.mark.parametrize(
    ("shape", "num_names", "expected"),
    [
        ((1, 84, 504), None, ["columns"]),
        ((1, 504, 85), None, ["cells"]),
        ((1, 1512, 85), None, ["rows"]),
        ((1, "anchors", 85), None, ["rows"]),
        ((1, 84, "anchors"), None, ["columns"]),
        ((1, 300, 6), None, ["end to end"]),
        ((300, 6), None, ["end to end"]),
        ((1, 1512, 6), None, ["rows"]),  # a row for each cell is no coincidence
        ((1, 1512, 6), 80, ["end to end"]),
        ((1, "anchors", 6), 2, ["end to end"]),
        ((1, 116, 84), None, []),
        ((1, "a", "b"), None, []),
    ],
)
def test_a_shape_that_means_one_thing_or_none(
    shape: tuple[Dimension, ...], num_names: int | None, expected: list[str]
) -> None:
    assert meanings(*shape, num_names=num_names) == expected


def test_a_square_of_values_and_cells_may_be_read_either_way() -> None:
    assert meanings(1, 84, 84, size=(64, 64)) == ["cells", "columns"]
    assert meanings(1, 84, 84, size=(64, 64), num_names=80) == ["columns"]


@pytest.mark.parametrize("num_names", [None, 1])
def test_six_columns_of_any_number_may_have_an_objectness(num_names: int | None) -> None:
    assert meanings(1, "anchors", 6, num_names=num_names) == ["rows", "end to end"]


@pytest.mark.parametrize("no_object", [True, False])
def test_a_query_without_finite_logits_is_unknown(no_object: bool) -> None:
    logits = np.full((1, 3, 4), -9, np.float32)
    logits[0, 0, 1] = 9
    logits[0, 1, 2] = np.nan  # of another class
    logits[0, 2, 0] = np.inf
    layout = QueryLayout("queries", ("logits", "pred_boxes"), 3, RULES, no_object)
    _, scores = layout.persons([logits, np.full((1, 3, 4), 0.5, np.float32)], SIZE, 1)
    np.testing.assert_allclose(scores, [1, np.nan, np.nan], atol=1e-3)


def test_an_end_to_end_row_without_a_class_is_unknown() -> None:
    rows = np.array([[[0, 0, 9, 9, 0.9, 0], [0, 0, 9, 9, 0.9, np.nan], [0, 0, 9, 9, 0.9, 1]]])
    layout = EndToEndLayout("end to end", ("output0",), None, RULES)
    _, scores = layout.persons([rows], SIZE, 0)
    np.testing.assert_array_equal(scores, [0.9, np.nan])
