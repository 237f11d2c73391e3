"""Person boxes that are known without looking at the pixels: given with a sample, or its frame.

Reading and naming the columns is left to `sources`. A sample without boxes has no persons: nobody
is invented, unless the job says `on_empty: whole_image`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sapiens_batch.errors import SampleError
from sapiens_batch.images.decoded import DecodedImage
from sapiens_batch.persons.base import PersonFinder, Persons
from sapiens_batch.persons.boxes import sort_out, whole_image
from sapiens_batch.records import Array, Problem, Sample

_NOBODY = np.empty((0, 4), np.float32)


class GivenPersonFinder(PersonFinder):
    """Takes the boxes that the source gives."""

    def find(
        self, samples: Sequence[Sample], images: Sequence[DecodedImage]
    ) -> list[Persons | Problem]:
        """See `PersonFinder.find`."""
        return [self._find(*both) for both in zip(samples, images, strict=True)]

    def boxes_before_decoding(self, sample: Sample) -> Array | None:
        """See `PersonFinder.boxes_before_decoding`."""
        if sample.boxes is None or sample.boxes.size == 0:
            return None if self.spec.on_empty == "whole_image" else _NOBODY
        boxes = sample.boxes
        usable = boxes.ndim == 2 and boxes.shape[1] == 4 and np.isfinite(boxes).all()
        return boxes if usable and (boxes[:, 2:] > 0).all() else None

    def _find(self, sample: Sample, image: DecodedImage) -> Persons | Problem:
        boxes, scores = sample.boxes, sample.box_scores
        try:
            return sort_out(_NOBODY if boxes is None else boxes, scores, image.size, self.spec)
        except SampleError as error:
            return Problem(error.reason, error.message)


class WholeImagePersonFinder(PersonFinder):
    """Takes the whole image as one box of unknown score, for corpora that are person crops already.

    Chosen in the job file only, never a fallback for an image in which nobody was found.
    """

    def find(
        self, samples: Sequence[Sample], images: Sequence[DecodedImage]
    ) -> list[Persons | Problem]:
        """See `PersonFinder.find`."""
        return [whole_image(image.size) for image in images]
