"""One person per image, filling it: for corpora that are person crops already.

Chosen in the job file only, never a fallback for an image in which nobody was found.
"""

from __future__ import annotations

from collections.abc import Sequence

from sapiens_batch.images.decoded import DecodedImage
from sapiens_batch.persons.base import PersonFinder, Persons
from sapiens_batch.persons.boxes import whole_image
from sapiens_batch.records import Problem, Sample


class WholeImagePersonFinder(PersonFinder):
    """Takes the whole image as one box of unknown score."""

    def find(
        self, samples: Sequence[Sample], images: Sequence[DecodedImage]
    ) -> list[Persons | Problem]:
        """See `PersonFinder.find`."""
        return [whole_image(image.size) for image in images]
