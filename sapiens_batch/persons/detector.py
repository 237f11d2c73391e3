"""Persons that a detector finds in the pixels.

How a detector works is left to one module each; threshold, suppression and the rules for boxes are
the same for all. A detector is loaded once in each worker process, on first use. Invariants: what
is found in an image depends on that image alone (I7), and every worker uses the detector that the
job was planned with.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from sapiens_batch.errors import SpecError
from sapiens_batch.images.decoded import DecodedImage
from sapiens_batch.persons.base import Detector, PersonFinder, Persons
from sapiens_batch.persons.boxes import sort_out
from sapiens_batch.persons.movenet import MOVENET, load_movenet
from sapiens_batch.persons.nms import suppress
from sapiens_batch.records import Array, Problem, Sample
from sapiens_batch.spec.detector import DetectorSpec, is_onnx_file
from sapiens_batch.spec.job import PersonsSpec
from sapiens_batch.storage.addresses import absolute_uri

NON_FINITE = "person.detector_non_finite"


class DetectorPersonFinder(PersonFinder):
    """Takes the boxes that a detector finds."""

    @property
    def batch_images(self) -> int:
        """See `PersonFinder.batch_images`."""
        return self.spec.detector_section.batch_images

    def load(self) -> None:
        """See `PersonFinder.load`."""
        self._detector()

    def find(
        self, samples: Sequence[Sample], images: Sequence[DecodedImage]
    ) -> list[Persons | Problem]:
        """See `PersonFinder.find`."""
        found = self._detector().detect(images)
        return [
            _persons(corners, scores, image, self.spec)
            for (corners, scores), image in zip(found, images, strict=True)
        ]

    def _detector(self) -> Detector:
        section = with_absolute_model(self.spec).detector_section
        return _verified(
            section.model, section.revision, section.person_class, self.detector_digest
        )


def detector_digest(spec: PersonsSpec) -> str | None:
    """Digest of the detector that a job uses, for the spec digest; None where it uses none.

    Raises:
        DependencyError: The extra `detect` is not installed.
        SpecError: There is no such detector, it knows no persons, or its outputs mean nothing here.
    """
    if spec.origin != "detector":
        return None
    section = spec.detector_section
    # not from the cache: the file may have changed since an earlier job of this process
    return _load(section.model, section.revision, section.person_class).digest


def with_absolute_model(spec: PersonsSpec) -> PersonsSpec:
    """The spec with a detector that no longer depends on the working folder, for workers elsewhere.

    Names of bundled models and of hub repositories stay as they are.
    """
    section = spec.detector_section
    if spec.origin != "detector" or not _is_address(section):
        return spec
    absolute = section.model_copy(update={"model": absolute_uri(section.model)})
    return spec.model_copy(update={"detector": absolute})


def _is_address(section: DetectorSpec) -> bool:
    if section.model == MOVENET:
        return False
    return is_onnx_file(section.model) or Path(section.model).expanduser().is_dir()


@lru_cache(maxsize=1)  # a job has one
def _verified(
    model: str, revision: str | None, person_class: int | None, digest: str | None
) -> Detector:
    """The detector on this machine, which must be the planned one where its digest is given."""
    try:
        found = _load(model, revision, person_class)
    except SpecError as error:
        if digest is None:
            raise
        raise SpecError(
            f"{error}; the job was planned with it: put the same file on every node"
        ) from error
    if digest is not None and found.digest != digest:
        raise SpecError(
            f"persons.detector.model: {model} has the digest {found.digest} here, the job was "
            f"planned with {digest}: put the same file on every node, and name a "
            "persons.detector.revision for a model of the hub"
        )
    return found


def _load(model: str, revision: str | None, person_class: int | None) -> Detector:
    if model == MOVENET:
        return load_movenet()
    # imported on use: most jobs need neither
    if is_onnx_file(model):
        from sapiens_batch.persons.onnx_detector import load_onnx_detector

        return load_onnx_detector(model, person_class)
    from sapiens_batch.persons.hub_detector import load_hub_detector

    return load_hub_detector(model, revision)


def _persons(
    corners: Array, scores: Array, image: DecodedImage, spec: PersonsSpec
) -> Persons | Problem:
    section = spec.detector_section
    if unjudged := int((~(scores < np.inf)).sum()):
        return Problem(
            NON_FINITE,
            f"{unjudged} of {len(scores)} candidates have a score that is NaN or infinite, so who "
            f"is in the image is unknown; {section.model} may compute in too low a precision",
        )
    likely = np.flatnonzero(scores > section.threshold)
    finite = np.isfinite(corners[likely]).all(axis=1)
    sound, broken = likely[finite], likely[~finite]
    sound = sound[suppress(corners[sound], scores[sound], max_iou=section.nms_iou)]
    # overlaps of these are unknown, so nothing else bounds their number
    broken = broken[np.argsort(-scores[broken], kind="stable")][: spec.max_persons]
    kept = np.concatenate([sound, broken])
    with np.errstate(invalid="ignore", over="ignore"):
        boxes = np.concatenate([corners[kept, :2], corners[kept, 2:] - corners[kept, :2]], axis=1)
    return sort_out(boxes, scores[kept], image.size, spec)
