"""The receipt: durable proof that one chunk is labeled, and the objects that a commit will name.

Documents only; when a receipt may be written is decided by the stages, whether receipts make a
whole shard by `protocol.commit`. A receipt is created once, after everything that it names (I6).
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from sapiens_batch.protocol.documents import Count, Counts, Document, Hex32, StoredObject
from sapiens_batch.records import FORMAT_VERSION, Problem


class Receipt(Document):
    """One labeled chunk.

    A receipt of a later generation describes its whole chunk too: samples that were not ordered are
    taken over from the generation before.

    Attributes:
        format_version: Version of this document.
        shard_id: The shard.
        generation: 0 for the first labels of the shard.
        chunk: Number of the chunk in the shard.
        start: Index of the first sample.
        stop: Index after the last sample.
        last: Whether the chunk ends the shard.
        write_id: The attempt, 32 hex digits, unique.
        counts: Samples by status, and persons.
        reasons: Quarantined samples by reason.
        problems: Damage of the shard that belongs to no sample.
        parts: The rows of the chunk, by table.
        arrays: The array object of the chunk, by task; only tasks with a labeled row.
        timings_s: Seconds by stage, for people.
        created: ISO 8601 time in UTC.
    """

    format_version: Annotated[int, Field(ge=1, le=FORMAT_VERSION)] = FORMAT_VERSION
    shard_id: Hex32
    generation: Count = 0
    chunk: Count
    start: Count
    stop: Count
    last: bool
    write_id: Hex32
    counts: Counts
    reasons: dict[str, Count] = Field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    parts: dict[str, StoredObject] = Field(default_factory=dict)
    arrays: dict[str, StoredObject] = Field(default_factory=dict)
    timings_s: dict[str, float] = Field(default_factory=dict)
    created: str

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.stop < self.start:
            raise ValueError(f"range [{self.start}, {self.stop}) is reversed")
        if self.counts.samples != self.stop - self.start:
            raise ValueError(
                f"{self.counts.samples} samples counted in range [{self.start}, {self.stop})"
            )
        if sum(self.reasons.values()) != self.counts.quarantined:
            raise ValueError(
                f"reasons count {sum(self.reasons.values())} of {self.counts.quarantined} "
                "quarantined samples"
            )
        return self
