"""The receipt: durable proof that one chunk is labeled, and the objects that a commit will name.

Documents only; when a receipt may be written is decided by the pipeline, whether receipts make a
whole shard by `job.commit`. A receipt is created once, after everything that it names (I6).
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sapiens_batch.errors import ProtocolError
from sapiens_batch.records import Problem

FORMAT_VERSION = 1

Count = Annotated[int, Field(ge=0)]
Hex32 = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Document(BaseModel):
    """A JSON object of a job directory: frozen, nothing unknown, stable bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")

    def to_bytes(self) -> bytes:
        """UTF-8 JSON; the same document always gives the same bytes."""
        return (self.model_dump_json(indent=1) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes, key: str) -> Self:
        """Read a document.

        Args:
            data: What `to_bytes` wrote.
            key: Where it was found, for the error message.

        Raises:
            ProtocolError: It is not a document of this kind and version.
        """
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "document"
            raise ProtocolError(
                f"{key}: not a valid {cls.__name__}: {field}: {first['msg']}, found "
                f"{first['input']!r:.80}; the object is damaged or of a newer version, run `verify`"
            ) from error


class StoredObject(Document):
    """One object that a receipt or commit names.

    Attributes:
        key: Key in the job directory.
        size_bytes: Size.
        sha256: Digest of the bytes, hex.
        rows: Table rows, or labeled array rows; 0 where rows mean nothing.
    """

    key: str
    size_bytes: Count
    sha256: Sha256
    rows: Count = 0

    @classmethod
    def describe(cls, key: str, data: bytes | memoryview, *, rows: int = 0) -> StoredObject:
        """The record of an object with these bytes."""
        digest = hashlib.sha256(data).hexdigest()
        return cls(key=key, size_bytes=memoryview(data).nbytes, sha256=digest, rows=rows)


class Counts(Document):
    """What became of samples; persons are counted beside them.

    Attributes:
        ok: Samples with labels.
        empty: Samples without a person where persons are asked for.
        quarantined: Samples that could not be labeled.
        persons: Rows of the persons table.
    """

    ok: Count = 0
    empty: Count = 0
    quarantined: Count = 0
    persons: Count = 0

    @property
    def samples(self) -> int:
        """All samples (I1)."""
        return self.ok + self.empty + self.quarantined

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            ok=self.ok + other.ok,
            empty=self.empty + other.empty,
            quarantined=self.quarantined + other.quarantined,
            persons=self.persons + other.persons,
        )


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


def now() -> str:
    """The current time as documents record it: ISO 8601, UTC, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")
