"""One person per image, filling it: for corpora that are person crops already.

Chosen in the job file only, never a fallback for an image in which nobody was found.
"""

from __future__ import annotations

import numpy as np

from sapiens_batch.persons.base import PersonFinder, Persons
from sapiens_batch.records import Array, Sample


class WholeImagePersonFinder(PersonFinder):
    """Takes the whole image as one box of unknown score."""

    def find(self, sample: Sample, image: Array) -> Persons:
        """See `PersonFinder.find`."""
        box = np.array([[0, 0, image.shape[1], image.shape[0]]], np.float32)
        return Persons(box, np.full(1, np.nan, np.float32))
