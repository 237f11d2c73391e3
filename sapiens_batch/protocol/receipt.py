"""The receipt: durable proof that one chunk is labeled, and the rows of its samples.

One object holds a document and the chunk's table rows behind it, so that a chunk costs one request
besides its arrays. When a receipt may be written is decided by `put`, whether receipts make a whole
shard by `commit`. It is created once, after everything that it names (I6), and none of its bytes is
believed before it was checked (I8).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from sapiens_batch.errors import DamagedReceiptError, ProtocolError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.documents import (
    Count,
    Counts,
    Document,
    Hex32,
    Sha256,
    StoredObject,
)
from sapiens_batch.records import FORMAT_VERSION, Problem
from sapiens_batch.storage import MissingObjectError, Store
from sapiens_batch.storage.checked import check_bytes

_END_OF_DOCUMENT = b"\n"


class RowSection(Document):
    """The chunk's rows of one table, which lie behind the document.

    Attributes:
        size_bytes: Size.
        sha256: Digest of the bytes, hex.
        rows: How many rows.
    """

    size_bytes: Count
    sha256: Sha256
    rows: Count

    @classmethod
    def describe(cls, data: bytes, *, rows: int) -> RowSection:
        """The record of a section with these bytes."""
        return cls(size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), rows=rows)


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
        rows: The rows of the chunk, by table, in the order of their bytes; a table without rows
            may be absent.
        arrays: The array object of the chunk, by task; none where the chunk has no samples.
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
    rows: dict[str, RowSection] = Field(default_factory=dict)
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

    def pack(self, sections: Mapping[str, bytes]) -> bytes:
        """The object as it is stored.

        Args:
            sections: The bytes that `rows` describes, by table.
        """
        return b"".join(
            [self.to_line(), _END_OF_DOCUMENT, *(sections[table] for table in self.rows)]
        )

    @classmethod
    def unpack(cls, data: bytes, key: str) -> tuple[Receipt, dict[str, bytes]]:
        """Read what `pack` wrote, every byte checked; the receipt and its sections by table.

        Args:
            data: The object.
            key: Where it was found, for the error message.

        Raises:
            ProtocolError: A byte is not what it was.
        """
        line, _, rest = data.partition(_END_OF_DOCUMENT)
        receipt = cls.from_bytes(line, key)
        sections: dict[str, bytes] = {}
        start = 0
        for table, found in receipt.rows.items():
            piece = rest[start : start + found.size_bytes]
            check_bytes(key, piece, size_bytes=found.size_bytes, sha256=found.sha256)
            sections[table] = piece
            start += found.size_bytes
        if start != len(rest) or data[len(line) : len(line) + 1] != _END_OF_DOCUMENT:
            raise ProtocolError(
                f"{key}: {len(rest)} bytes of rows, {start} are recorded; the object is damaged, "
                "run `verify`"
            )
        return receipt, sections


def read_receipt(
    store: Store, shard_id: str, chunk: int, generation: int = 0
) -> tuple[Receipt, dict[str, bytes]]:
    """The receipt of a chunk with its sections of rows by table, every byte checked.

    Raises:
        DamagedReceiptError: It is gone, damaged, or another chunk's.
        StorageError: It cannot be read.
    """
    key = keys.receipt(shard_id, chunk, generation)
    try:
        receipt, sections = Receipt.unpack(store.read(key), key)
    except (MissingObjectError, ProtocolError) as error:
        raise DamagedReceiptError(f"{key}: the receipt is lost: {error}") from error
    if (receipt.shard_id, receipt.chunk, receipt.generation) != (shard_id, chunk, generation):
        raise DamagedReceiptError(
            f"{key}: names chunk {receipt.chunk} of shard {receipt.shard_id}, generation "
            f"{receipt.generation}; run `verify`"
        )
    return receipt, sections
