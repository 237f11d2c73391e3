"""The contract of a person finder, and the rules that hold for boxes of every origin.

Cutting crops is left to `images`, rows to the pipeline. Invariant: every box that leaves a finder
is finite, of positive size and touches the image; a box that does not is named in `problems`, never
mended and never dropped in silence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from sapiens_batch.errors import SampleError
from sapiens_batch.records import Array, Problem, Sample


@dataclass(frozen=True, slots=True)
class Persons:
    """The persons of one image, in the order of their origin.

    Attributes:
        boxes: (P, 4) float32 COCO xywh in source pixels; they may reach out of the image.
        scores: (P,) float32, NaN where unknown.
        problems: One for each box that was dropped as unusable.
        truncated: Whether usable boxes were dropped because there were too many.
    """

    boxes: Array
    scores: Array
    problems: tuple[Problem, ...] = ()
    truncated: bool = False


class PersonFinder(ABC):
    """One origin of person boxes. Subclasses are picklable.

    Args:
        max_persons: The most boxes of one image that are kept.
    """

    def __init__(self, *, max_persons: int) -> None:
        self.max_persons = max_persons

    @abstractmethod
    def find(self, sample: Sample, image: Array) -> Persons:
        """Find the persons of one image.

        Args:
            sample: The sample, with the boxes that its source gives.
            image: (H, W, 3) uint8 RGB, upright.

        Raises:
            SampleError: What the source says about persons makes no sense as a whole.
        """


def keep_usable(
    boxes: Array, scores: Array | None, image_size: tuple[int, int], *, max_persons: int
) -> Persons:
    """Drop boxes that no crop can be cut from, then the worst ones of too many.

    Args:
        boxes: (P, 4) COCO xywh in source pixels, any values.
        scores: (P,), or None where unknown. Of too many boxes those with the best scores stay;
            boxes without a score come last, in their order.
        image_size: (height, width) of the upright image, px.
        max_persons: The most boxes to keep.

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
    usable = _usable(boxes, image_size)
    problems = tuple(_problem(boxes[i], int(i), image_size) for i in np.flatnonzero(~usable))
    kept = np.flatnonzero(usable)
    truncated = len(kept) > max_persons
    if truncated:
        rank = np.where(np.isnan(known[kept]), -np.inf, known[kept])
        best = np.argsort(-rank, kind="stable")[:max_persons]
        kept = kept[np.sort(best)]
    return Persons(boxes[kept], known[kept], problems, truncated)


def _usable(boxes: Array, image_size: tuple[int, int]) -> Array:
    height, width = image_size
    left, top, box_width, box_height = boxes.T.astype(np.float64)
    finite = np.isfinite(boxes).all(axis=1)
    sized = (box_width > 0) & (box_height > 0)
    reaches = (left + box_width > 0) & (top + box_height > 0)
    return np.asarray(finite & sized & reaches & (left < width) & (top < height))


def _problem(box: Array, position: int, image_size: tuple[int, int]) -> Problem:
    return Problem(
        "person.degenerate_box",
        f"box {position} is {[float(value) for value in box]} (left, top, width, height) on an "
        f"image of {image_size[1]} x {image_size[0]} px; it needs finite numbers, a positive size "
        "and a part inside the image",
    )
