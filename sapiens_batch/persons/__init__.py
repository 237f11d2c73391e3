"""Where the persons of an image come from: one line in the table for each origin."""

from __future__ import annotations

from sapiens_batch.persons.base import PersonFinder
from sapiens_batch.persons.detector import DetectorPersonFinder
from sapiens_batch.persons.finders import GivenPersonFinder, WholeImagePersonFinder
from sapiens_batch.spec.job import PersonsSpec

_FINDERS: dict[str, type[PersonFinder]] = {
    "source": GivenPersonFinder,
    "whole_image": WholeImagePersonFinder,
    "detector": DetectorPersonFinder,
}


def make_person_finder(spec: PersonsSpec, detector_digest: str | None = None) -> PersonFinder:
    """Make the finder that the `persons` section of a job file asks for.

    Args:
        spec: The section.
        detector_digest: See `PersonFinder`.
    """
    return _FINDERS[spec.origin](spec, detector_digest)
