"""Maps of overlapping persons become one map: nobody erases a neighbour."""

from __future__ import annotations

import numpy as np

from sapiens_batch.labelset.sample import lay_over
from sapiens_batch.records import ArrayField, LabelSchema, Level

MASK = ArrayField((1, 4), "uint8", 255, ("y", "x"), "zstd")
CLASSES = {"classes": ["background", "face", "hair"]}
SEG = LabelSchema("seg", Level.PERSON, (), MASK, CLASSES)


def dense(task: str, channels: tuple[str, ...]) -> LabelSchema:
    field = ArrayField((len(channels), 1, 3), "float16", np.nan, ("channel", "y", "x"), "blosc")
    return LabelSchema(task, Level.PERSON, (), field, {})


def test_the_top_class_wins_but_its_background_hides_nothing() -> None:
    top = np.array([[1, 0, 0, 255]], np.uint8)
    below = np.array([[2, 2, 255, 2]], np.uint8)
    assert lay_over(SEG, top, below).tolist() == [[1, 2, 0, 2]]


def test_the_background_is_the_class_of_that_name() -> None:
    schema = LabelSchema("seg", Level.PERSON, (), MASK, {"classes": ["face", "Background"]})
    top = np.array([[0, 1, 1, 1]], np.uint8)
    below = np.array([[1, 0, 255, 1]], np.uint8)
    assert lay_over(schema, top, below).tolist() == [[0, 0, 1, 1]]


def test_the_greater_alpha_of_two_mattes_wins_with_its_colours() -> None:
    schema = dense("matting", ("red", "green", "blue", "alpha"))
    top = np.array([0.1, 0.1, np.nan], np.float16)
    below = np.array([0.9, 0.05, 0.4], np.float16)
    merged = lay_over(schema, np.tile(top, (4, 1, 1)), np.tile(below, (4, 1, 1)))
    for channel in merged:
        assert channel[0].tolist() == np.array([0.9, 0.1, 0.4], np.float16).tolist()


def test_numeric_maps_show_the_top_where_it_is_labeled() -> None:
    schema = dense("normal", ("x", "y", "z"))
    top = np.full((3, 1, 3), [0, np.nan, 1], np.float16)
    below = np.full((3, 1, 3), [0.5, 0.5, np.nan], np.float16)
    merged = lay_over(schema, top, below)
    assert merged[0, 0].tolist() == [0, 0.5, 1]
