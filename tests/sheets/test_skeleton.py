"""Persons drawn on a picture."""

from __future__ import annotations

import numpy as np

from sapiens_batch.records import Array
from sapiens_batch.sheets.skeleton import DrawnPerson, Skeleton

NAMES = ["left_hip", "left_knee", "left_thumb4", "left_thumb3"]
METADATA = {"keypoints": NAMES, "skeleton": [[0, 1], [2, 3]]}
BOX = np.array([0.0, 0.0, 90.0, 90.0])


def drawn(keypoints: Array, scores: Array, *, size: int = 100) -> Array:
    picture = np.zeros((size, size, 3), np.uint8)
    person = DrawnPerson(BOX, keypoints, scores)
    Skeleton(METADATA, 4).draw(picture, [person], min_score=0.3, boxes=False)
    return picture


def test_a_limb_is_drawn_in_the_colour_of_its_side() -> None:
    points = np.array([[20.0, 50.0], [80.0, 50.0], [np.nan, 0], [0, np.nan]])
    picture = drawn(points, np.ones(4))
    # its edges are smooth, and a limb of this person is two pixels wide
    np.testing.assert_allclose(picture[50, 50], [64, 220, 120], atol=30)
    assert picture[30].max() == 0


def test_points_below_the_threshold_and_missing_ones_are_not_drawn() -> None:
    points = np.array([[20.0, 50.0], [80.0, 50.0], [30.0, 20.0], [40.0, 20.0]])
    assert drawn(points, np.full(4, 0.3)).max() == 0
    assert drawn(np.full((4, 2), np.nan), np.ones(4)).max() == 0


def test_a_link_needs_both_its_ends() -> None:
    points = np.array([[20.0, 50.0], [80.0, 50.0], [30.0, 20.0], [40.0, 20.0]])
    picture = drawn(points, np.array([1, 0, 0, 0]))
    assert picture[50, 20].max() > 0
    assert picture[50, 50].max() == 0


def test_lines_grow_with_the_person() -> None:
    points = np.array([[20.0, 50.0], [80.0, 50.0], [np.nan, 0], [0, np.nan]])
    small, large = (np.zeros((100, 100, 3), np.uint8) for _ in range(2))
    for picture, side in ((small, 45.0), (large, 700.0)):
        person = DrawnPerson(np.array([0, 0, side, side]), points, np.ones(4))
        Skeleton(METADATA, 4).draw(picture, [person], min_score=0, boxes=False)
    assert (large[:, 50].max(axis=1) > 0).sum() > 2 * (small[:, 50].max(axis=1) > 0).sum()


def test_points_far_outside_do_no_harm() -> None:
    points = np.array([[-1e9, 50.0], [1e9, 50.0], [np.inf, 0], [0, 0]])
    drawn(points, np.ones(4))


def test_a_vocabulary_without_names_is_drawn_as_points() -> None:
    picture = np.zeros((40, 40, 3), np.uint8)
    person = DrawnPerson(BOX, np.array([[10.0, 10.0], [30.0, 30.0]]), np.ones(2))
    Skeleton({"keypoints": None}, 2).draw(picture, [person], min_score=0, boxes=False)
    assert picture[10, 10].max() > 0 and picture[30, 30].max() > 0
