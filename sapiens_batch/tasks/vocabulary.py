"""Names of keypoints and classes, as published with the models.

The lists are data files beside this module. Index order is the models' channel order and must not
be confused between vocabularies: index 9 is a hip in the 308 keypoints and a wrist in COCO's 17.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

_KEYPOINTS = {17: "keypoints17", 133: "keypoints133", 308: "keypoints308"}
_CLASSES = {28: "seg28_v1", 29: "seg29"}


@cache
def _load(name: str) -> Mapping[str, Any]:
    loaded: dict[str, Any] = json.loads(
        files("sapiens_batch.tasks").joinpath("vocab", f"{name}.json").read_text()
    )
    return loaded


def keypoint_vocabulary(count: int) -> Mapping[str, Any] | None:
    """Names, flip pairs and skeleton for a number of keypoints; None where it is not a known one.

    The keys are those of the data file, among them `names`, `flip_pairs`, `flip_indices`,
    `skeleton` and `sigmas`.
    """
    return _load(_KEYPOINTS[count]) if count in _KEYPOINTS else None


def class_vocabulary(count: int) -> Mapping[str, Any] | None:
    """Names, palette and flip pairs for a number of classes; None where it is not a known one.

    The keys are those of the data file, among them `names`, `palette_rgb` and `flip_pairs`.
    """
    return _load(_CLASSES[count]) if count in _CLASSES else None
