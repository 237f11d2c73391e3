"""Keypoints by part of the person: for colours, thresholds and score histograms.

The names decide, as the label schema has them, so that every vocabulary with the models' way of
naming works: 308, 133 and 17 points.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal, get_args

GroupName = Literal["body", "feet", "left_hand", "right_hand", "face", "extra"]

Side = Literal["left", "right", "middle"]

BODY17: Final = (
    "nose", "left_eye", "right_eye", "left_ear", "right_ear", "left_shoulder", "right_shoulder",
    "left_elbow", "right_elbow", "left_wrist", "right_wrist", "left_hip", "right_hip",
    "left_knee", "right_knee", "left_ankle", "right_ankle",
)  # fmt: skip
"""COCO's body keypoints in COCO's order; every vocabulary has them by these names."""

_HAND = re.compile(r"thumb|finger|hand")
_FEET = re.compile(r"toe|heel")
_EXTRA = re.compile(r"olecranon|cubital_fossa|acromion|^neck$")


def group_of(name: str) -> GroupName:
    """The part of the person that a keypoint belongs to."""
    if name in BODY17:
        return "body"
    if _HAND.search(name):
        return "left_hand" if side_of(name) == "left" else "right_hand"
    if _FEET.search(name):
        return "feet"
    return "extra" if _EXTRA.search(name) else "face"


def side_of(name: str) -> Side:
    """The person's own side."""
    words = name.split("_")
    if "left" in words or "l" in words:
        return "left"
    return "right" if "right" in words or "r" in words else "middle"


def keypoint_groups(names: Sequence[str]) -> dict[GroupName, list[int]]:
    """Indices of keypoints by group, groups without points left out."""
    found: dict[GroupName, list[int]] = {group: [] for group in get_args(GroupName)}
    for index, name in enumerate(names):
        found[group_of(name)].append(index)
    return {group: indices for group, indices in found.items() if indices}
