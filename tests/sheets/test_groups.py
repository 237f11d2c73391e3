"""Keypoints by part of the person."""

from __future__ import annotations

import pytest

from sapiens_batch.sheets.groups import keypoint_groups, side_of
from tests.label_schemas import vocabulary


@pytest.mark.parametrize("name", ["keypoints308", "keypoints133"])
def test_names_give_the_groups_of_the_published_vocabulary(name: str) -> None:
    known = vocabulary(name)
    found = keypoint_groups(known["names"])
    published = {group: sorted(members) for group, members in known["groups"].items()}
    assert {str(group): sorted(members) for group, members in found.items()} == published


def test_the_17_points_of_coco_are_all_body() -> None:
    names = vocabulary("keypoints17")["names"]
    assert keypoint_groups(names) == {"body": list(range(17))}


def test_the_two_points_of_a_flip_pair_are_never_on_one_side() -> None:
    known = vocabulary("keypoints308")
    for first, second in known["flip_pairs"]:
        sides = {side_of(known["names"][first]), side_of(known["names"][second])}
        # the points of the lips have no side in their names
        assert sides in ({"left", "right"}, {"middle"})
