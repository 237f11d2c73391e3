"""Which boxes are persons: rules that hold for boxes of every origin.

A box is refused for what is wrong with the box itself; which boxes there are is left to the
finders. The order of the rules is the order of `_REASONS`: the first that applies is reported.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sapiens_batch.errors import SampleError
from sapiens_batch.persons.base import Persons, RefusedPerson
from sapiens_batch.records import Array, Problem
from sapiens_batch.spec.job import PersonsSpec

# Boxes in fractions of the image reach 1, or a little beyond for persons who are cut off.
_LARGEST_FRACTION = 1.5
# Boxes of half-visible persons reach far out of the image; beyond this they are mistakes.
_LARGEST_SIDES = 2.0

_REASONS = {
    "person.not_finite": "four finite numbers are needed",
    "person.no_area": "width and height must be positive",
    "person.normalised": "all boxes of the image lie within 1.5 px of its corner, as fractions of "
    "the image do; give pixels",
    "person.outside": "no part of it lies inside the image",
    "person.too_large": "a side is more than twice as long as the image's",
    "person.too_small": "a side is shorter than persons.min_size_px",
}


def sort_out(
    boxes: Array, scores: Array | None, image_size: tuple[int, int], spec: PersonsSpec
) -> Persons:
    """Set aside boxes that no crop can be cut from, then drop the worst ones of too many.

    Args:
        boxes: (P, 4) COCO xywh in source pixels, any values.
        scores: (P,), or None where unknown. Of too many boxes those with the best scores stay;
            boxes without a score come last, in their order.
        image_size: (height, width) of the upright image, px.
        spec: The largest number and the smallest size, and what to do where nobody is left.

    Raises:
        SampleError: `person.malformed_boxes` where the shapes are not (P, 4) and (P,).
    """
    boxes = np.asarray(boxes, np.float32)
    boxes = boxes.reshape(0, 4) if boxes.size == 0 else boxes
    known = np.full(len(boxes), np.nan) if scores is None else scores
    known = np.asarray(known, np.float32)
    if boxes.ndim != 2 or boxes.shape[1] != 4 or known.shape != (len(boxes),):
        raise SampleError(
            "person.malformed_boxes",
            f"boxes of shape {boxes.shape} with scores of shape {known.shape}; give one "
            "[left, top, width, height] and at most one score per person",
        )
    reasons = _reasons(boxes, image_size, spec.min_size_px)
    refused = tuple(
        RefusedPerson(i, boxes[i], known[i], _problem(reason, boxes[i], i, image_size))
        for i, reason in enumerate(reasons)
        if reason is not None
    )
    kept = np.array([i for i, reason in enumerate(reasons) if reason is None], int)
    truncated = len(kept) > spec.max_persons
    if truncated:
        kept = _best(kept, known, spec.max_persons)
    found = Persons(boxes[kept], known[kept], tuple(kept.tolist()), refused, truncated)
    if len(kept) == 0 and spec.on_empty == "whole_image":
        return replace(whole_image(image_size, len(boxes)), refused=refused, invented=True)
    return found


def whole_image(image_size: tuple[int, int], number: int = 0) -> Persons:
    """One person of unknown score that fills the image."""
    box = np.array([[0, 0, image_size[1], image_size[0]]], np.float32)
    return Persons(box, np.full(1, np.nan, np.float32), (number,))


def _best(kept: Array, scores: Array, count: int) -> Array:
    rank = np.where(np.isnan(scores[kept]), -np.inf, scores[kept])
    best: Array = kept[np.sort(np.argsort(-rank, kind="stable")[:count])]
    return best


def _reasons(boxes: Array, image_size: tuple[int, int], min_size_px: float) -> list[str | None]:
    """Why each of (P, 4) boxes is refused, None where it is not."""
    height, width = image_size
    left, top, box_width, box_height = boxes.T.astype(np.float64)
    with np.errstate(invalid="ignore"):
        reaches = (left + box_width > 0) & (top + box_height > 0)
        faults = {
            "person.not_finite": ~np.isfinite(boxes).all(axis=1),
            "person.no_area": ~((box_width > 0) & (box_height > 0)),
            "person.normalised": np.full(len(boxes), _are_fractions(boxes, image_size)),
            "person.outside": ~(reaches & (left < width) & (top < height)),
            "person.too_large": (box_width > _LARGEST_SIDES * width)
            | (box_height > _LARGEST_SIDES * height),
            "person.too_small": np.minimum(box_width, box_height) < min_size_px,
        }
    return [
        next((reason for reason in _REASONS if faults[reason][position]), None)
        for position in range(len(boxes))
    ]


def _are_fractions(boxes: Array, image_size: tuple[int, int]) -> bool:
    return min(image_size) > 2 and bool(((boxes >= 0) & (boxes <= _LARGEST_FRACTION)).all())


def _problem(reason: str, box: Array, position: int, image_size: tuple[int, int]) -> Problem:
    return Problem(
        reason,
        f"box {position} is {[float(value) for value in box]} (left, top, width, height) on an "
        f"image of {image_size[1]} x {image_size[0]} px: {_REASONS[reason]}",
    )
