"""The published names of keypoints and classes."""

from __future__ import annotations

import pytest

from sapiens_batch.tasks.vocabulary import class_vocabulary, keypoint_vocabulary


@pytest.mark.parametrize("count", [17, 133, 308])
def test_swapping_left_and_right_twice_changes_nothing(count: int) -> None:
    known = keypoint_vocabulary(count)
    swap = known["flip_indices"]
    assert len(known["names"]) == count
    assert [swap[swap[index]] for index in range(count)] == list(range(count))


@pytest.mark.parametrize("count", [28, 29])
def test_every_class_has_a_name_and_a_colour(count: int) -> None:
    known = class_vocabulary(count)
    assert len(known["names"]) == len(known["palette_rgb"]) == count


def test_other_counts_have_no_vocabulary() -> None:
    assert keypoint_vocabulary(21) is None
    assert class_vocabulary(19) is None
