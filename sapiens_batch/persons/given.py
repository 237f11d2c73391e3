"""Person boxes that come with the samples.

Reading and naming the columns is left to `sources`. A sample without boxes has no persons: nobody
is invented.
"""

from __future__ import annotations

import numpy as np

from sapiens_batch.persons.base import PersonFinder, Persons, keep_usable
from sapiens_batch.records import Array, Sample


class GivenPersonFinder(PersonFinder):
    """Takes the boxes that the source gives."""

    def find(self, sample: Sample, image: Array) -> Persons:
        """See `PersonFinder.find`."""
        size = (image.shape[0], image.shape[1])
        if sample.boxes is None:
            return keep_usable(np.empty((0, 4)), None, size, max_persons=self.max_persons)
        return keep_usable(sample.boxes, sample.box_scores, size, max_persons=self.max_persons)
