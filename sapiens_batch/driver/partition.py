"""One of n equal parts of a job, so that several drivers can share it without talking.

A shard belongs to exactly one part, by its id, whatever else is planned. Drivers of the same part
waste work and change nothing (I6).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sapiens_batch.errors import SpecError


@dataclass(frozen=True, slots=True)
class Partition:
    """Part `number` of `count`.

    Attributes:
        number: From 1 to `count`.
        count: Parts in all.
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Partition:
        """Read `I/N`.

        Raises:
            SpecError: It is not of this form, or there is no such part.
        """
        match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise SpecError(f"--partition {text}: expected I/N with I from 1 to N, such as 1/4")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def owns(self, shard_id: str) -> bool:
        """Whether a shard belongs to this part; ids are digests, so parts are of equal size."""
        return int(shard_id[:16], 16) % self.count == self.number - 1


WHOLE = Partition(1, 1)
