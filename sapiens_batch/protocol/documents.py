"""What all documents of a job directory have in common, and the values that they share.

A document is a frozen JSON object; which documents there are is left to the sibling modules.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sapiens_batch.errors import ProtocolError

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


def now() -> str:
    """The current time as documents record it: ISO 8601, UTC, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")
