"""Suppression of overlapping boxes, with overlaps worked out by hand in whole pixels."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sapiens_batch.persons.nms import suppress


def kept(boxes: list[list[float]], scores: list[float], max_iou: float) -> list[int]:
    found = suppress(np.array(boxes, np.float32), np.array(scores, np.float32), max_iou=max_iou)
    return found.tolist()


def test_lengths_count_pixels() -> None:
    # 10 x 10 and 10 x 10 pixels that share 5 x 10: 50 / 150, where continuous areas give 36 / 126
    boxes = [[0, 0, 9, 9], [5, 0, 14, 9]]
    assert kept(boxes, [0.9, 0.8], 0.34) == [0, 1]
    assert kept(boxes, [0.9, 0.8], 0.33) == [0]


def test_an_overlap_that_equals_the_threshold_is_allowed() -> None:
    # 4 of 4 + 4 pixels less 2: 2 / 6 is not representable, 1 / 2 is
    boxes = [[0, 0, 3, 0], [0, 0, 1, 0]]
    assert kept(boxes, [0.9, 0.8], 0.5) == [0, 1]
    assert kept(boxes, [0.9, 0.8], 0.49) == [0]


def test_boxes_that_only_touch_share_a_column_of_pixels() -> None:
    boxes = [[0, 0, 1, 0], [1, 0, 2, 0]]  # one pixel of three
    assert kept(boxes, [0.5, 0.6], 0.34) == [1, 0]
    assert kept(boxes, [0.5, 0.6], 0.33) == [1]


def test_a_dropped_box_drops_nobody() -> None:
    boxes = [[0, 0, 9, 9], [4, 0, 13, 9], [8, 0, 17, 9]]  # 60 / 140, 60 / 140, 20 / 180
    assert kept(boxes, [0.9, 0.8, 0.7], 0.3) == [0, 2]


def test_equal_scores_keep_their_order_and_nothing_is_nothing() -> None:
    boxes = [[0, 0, 9, 9], [50, 0, 59, 9], [100, 0, 109, 9]]
    assert kept(boxes, [0.5, 0.5, 0.5], 0.3) == [0, 1, 2]
    assert suppress(np.empty((0, 4)), np.empty(0), max_iou=0.3).tolist() == []


corners = st.tuples(*[st.integers(0, 40)] * 4).map(
    lambda c: [min(c[0], c[2]), min(c[1], c[3]), max(c[0], c[2]), max(c[1], c[3])]
)


@given(st.lists(st.tuples(corners, st.integers(0, 9)), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_every_dropped_box_overlaps_a_better_kept_one(
    candidates: list[tuple[list[int], int]],
) -> None:
    boxes = [box for box, _ in candidates]
    scores = [score / 10 for _, score in candidates]
    survivors = kept(boxes, scores, 0.3)
    for position, box in enumerate(boxes):
        overlaps = [_iou(box, boxes[one]) for one in survivors if scores[one] >= scores[position]]
        assert position in survivors or max(overlaps) > 0.3
    for one in survivors:
        assert all(_iou(boxes[one], boxes[other]) <= 0.3 for other in survivors if other != one)


def _iou(one: list[int], other: list[int]) -> float:
    """Overlap by counting pixels."""
    sets = [
        {(x, y) for x in range(b[0], b[2] + 1) for y in range(b[1], b[3] + 1)} for b in (one, other)
    ]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])
