"""Persons that a detector finds in the pixels.

How a detector works is left to one module each; threshold, suppression and the rules for boxes are
the same for all. A detector is loaded once in each worker process, on first use. Invariant: what is
found in an image depends on that image alone (I7).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from sapiens_batch.images.decoded import DecodedImage
from sapiens_batch.job.spec import PersonsSpec
from sapiens_batch.persons.base import PersonFinder, Persons
from sapiens_batch.persons.boxes import sort_out
from sapiens_batch.persons.nms import suppress
from sapiens_batch.records import Array, Problem, Sample

MOVENET = "movenet"


class Detector(ABC):
    """One way to find persons."""

    @abstractmethod
    def detect(self, images: Sequence[DecodedImage]) -> list[tuple[Array, Array]]:
        """Find candidates.

        Args:
            images: Upright images, possibly reduced.

        Returns:
            For each image (P, 4) float32 first and last column and row in source pixels, in the
            order x, y, x, y, and (P,) float32 scores from 0 to 1; no suppression needed.
        """

    @property
    @abstractmethod
    def digest(self) -> str:
        """Hex sha256 over everything that decides the candidates besides the image."""


class DetectorPersonFinder(PersonFinder):
    """Takes the boxes that a detector finds."""

    @property
    def batch_images(self) -> int:
        """See `PersonFinder.batch_images`."""
        return self.spec.detector_section.batch_images

    def find(
        self, samples: Sequence[Sample], images: Sequence[DecodedImage]
    ) -> list[Persons | Problem]:
        """See `PersonFinder.find`."""
        section = self.spec.detector_section
        found = _loaded(section.model, section.revision).detect(images)
        return [
            _persons(corners, scores, image, self.spec)
            for (corners, scores), image in zip(found, images, strict=True)
        ]


def detector_digest(spec: PersonsSpec) -> str | None:
    """Digest of the detector that a job uses, for the spec digest; None where it uses none.

    Raises:
        DependencyError: The extra `detect` is not installed.
        SpecError: There is no such detector, or it knows no persons.
    """
    if spec.origin != "detector":
        return None
    section = spec.detector_section
    return _loaded(section.model, section.revision).digest


@cache
def _loaded(model: str, revision: str | None) -> Detector:
    return _loader(model)(model, revision)


def _loader(model: str) -> Callable[[str, str | None], Detector]:
    # imported on use: each needs libraries that the other, and most jobs, do not
    if model == MOVENET:
        from sapiens_batch.persons.movenet import load_movenet

        return load_movenet
    from sapiens_batch.persons.hub_detector import load_hub_detector

    return load_hub_detector


def _persons(corners: Array, scores: Array, image: DecodedImage, spec: PersonsSpec) -> Persons:
    section = spec.detector_section
    likely = np.flatnonzero(scores > section.threshold)
    likely = likely[np.isfinite(corners[likely]).all(axis=1)]
    kept = likely[suppress(corners[likely], scores[likely], max_iou=section.nms_iou)]
    boxes = np.concatenate([corners[kept, :2], corners[kept, 2:] - corners[kept, :2]], axis=1)
    return sort_out(boxes, scores[kept], image.size, spec)
