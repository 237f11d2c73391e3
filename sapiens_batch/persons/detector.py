"""Persons that a detector finds in the pixels.

How a detector works is left to one module each; threshold, suppression and the rules for boxes are
the same for all. A detector is loaded once in each worker process, on first use. Invariant: what is
found in an image depends on that image alone (I7).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from sapiens_batch.images.decoded import DecodedImage
from sapiens_batch.job.spec import DetectorSpec, PersonsSpec, is_onnx_file
from sapiens_batch.persons.base import Detector, PersonFinder, Persons
from sapiens_batch.persons.boxes import sort_out
from sapiens_batch.persons.movenet import MOVENET, load_movenet
from sapiens_batch.persons.nms import suppress
from sapiens_batch.records import Array, Problem, Sample


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
        found = _detector(self.spec.detector_section).detect(images)
        return [
            _persons(corners, scores, image, self.spec)
            for (corners, scores), image in zip(found, images, strict=True)
        ]


def detector_digest(spec: PersonsSpec) -> str | None:
    """Digest of the detector that a job uses, for the spec digest; None where it uses none.

    Raises:
        DependencyError: The extra `detect` is not installed.
        SpecError: There is no such detector, it knows no persons, or its outputs mean nothing here.
    """
    if spec.origin != "detector":
        return None
    return _detector(spec.detector_section).digest


def _detector(section: DetectorSpec) -> Detector:
    return _loaded(section.model, section.revision, section.person_class)


@cache
def _loaded(model: str, revision: str | None, person_class: int | None) -> Detector:
    if model == MOVENET:
        return load_movenet()
    # imported on use: most jobs need neither
    if is_onnx_file(model):
        from sapiens_batch.persons.onnx_detector import load_onnx_detector

        return load_onnx_detector(model, person_class)
    from sapiens_batch.persons.hub_detector import load_hub_detector

    return load_hub_detector(model, revision)


def _persons(corners: Array, scores: Array, image: DecodedImage, spec: PersonsSpec) -> Persons:
    section = spec.detector_section
    likely = np.flatnonzero(scores > section.threshold)
    likely = likely[np.isfinite(corners[likely]).all(axis=1)]
    kept = likely[suppress(corners[likely], scores[likely], max_iou=section.nms_iou)]
    boxes = np.concatenate([corners[kept, :2], corners[kept, 2:] - corners[kept, :2]], axis=1)
    return sort_out(boxes, scores[kept], image.size, spec)
