"""What all documents of a job directory have in common, and the values that they share.

A document is a frozen JSON object that ends with a checksum of itself, so that a damaged one is
never believed (I8); which documents there are is left to the sibling modules.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sapiens_batch.errors import ProtocolError
from sapiens_batch.records import Status
from sapiens_batch.storage import Store
from sapiens_batch.storage.checked import REMEDY, block_crc32c, check_bytes, crc32c

Count = Annotated[int, Field(ge=0)]
Hex32 = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

_INDENTED: Final = ("\n}", ',\n "crc32c": "{:8}"\n}}\n')
_ONE_LINE: Final = ("}", ',"crc32c":"{:8}"}}')


class Document(BaseModel):
    """A JSON object of a job directory: frozen, nothing unknown, stable bytes.

    As stored its last member is `crc32c`: the CRC-32C, in hex, of the bytes before that member and
    the comma that leads it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")

    def to_bytes(self) -> bytes:
        """UTF-8 JSON with a checksum; the same document always gives the same bytes."""
        return _seal(self.model_dump_json(indent=1).removesuffix(_INDENTED[0]).encode(), _INDENTED)

    def to_line(self) -> bytes:
        """The same without a line break anywhere, for an object in which other bytes follow."""
        return _seal(self.model_dump_json().removesuffix(_ONE_LINE[0]).encode(), _ONE_LINE)

    @classmethod
    def from_bytes(cls, data: bytes, key: str) -> Self:
        """Read a document.

        Args:
            data: What `to_bytes` or `to_line` wrote.
            key: Where it was found, for the error message.

        Raises:
            ProtocolError: Its checksum is wrong, or it is not a document of this kind and version.
        """
        if not any(_is_sealed(data, form) for form in (_INDENTED, _ONE_LINE)):
            raise ProtocolError(
                f"{key}: not a valid {cls.__name__}: its {len(data)} bytes do not end with their "
                "own checksum; the object is damaged, run `verify`"
            )
        members = data[: data.rindex(b",")] + b"}"
        try:
            return cls.model_validate_json(members)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "document"
            raise ProtocolError(
                f"{key}: not a valid {cls.__name__}: {field}: {first['msg']}, found "
                f"{first['input']!r:.80}; the object is of a newer version or misplaced, run "
                "`verify`"
            ) from error


class StoredObject(Document):
    """One object that a receipt or commit names.

    Attributes:
        key: Key in the job directory.
        size_bytes: Size.
        sha256: Digest of the bytes, hex.
        rows: Table rows, or labeled array rows; 0 where rows mean nothing.
        block_crc32c: CRC-32C of each started block of 256 KiB, 8 hex digits each, where readers
            want ranges of the object; else empty.
    """

    key: str
    size_bytes: Count
    sha256: Sha256
    rows: Count = 0
    block_crc32c: Annotated[str, Field(pattern=r"^([0-9a-f]{8})*$")] = ""

    @classmethod
    def describe(
        cls, key: str, data: bytes | memoryview, *, rows: int = 0, blocks: bool = False
    ) -> StoredObject:
        """The record of an object with these bytes.

        Args:
            key: Its key.
            data: The bytes.
            rows: What `rows` says.
            blocks: Whether readers will want ranges of it, as of tables.
        """
        return cls(
            key=key,
            size_bytes=memoryview(data).nbytes,
            sha256=hashlib.sha256(data).hexdigest(),
            rows=rows,
            block_crc32c=block_crc32c(data) if blocks else "",
        )

    def read(self, store: Store, *, remedy: str = REMEDY) -> bytes:
        """The whole object, checked (I8).

        Args:
            store: Where it lies.
            remedy: What to do when it is damaged, for the message.

        Raises:
            MissingObjectError: It is gone.
            ProtocolError: It has another size or digest.
            StorageError: It cannot be read.
        """
        data = store.read(self.key)
        check_bytes(self.key, data, size_bytes=self.size_bytes, sha256=self.sha256, remedy=remedy)
        return data


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

    @classmethod
    def of(cls, statuses: Mapping[str, int], persons: int) -> Counts:
        """The counts of rows of `images` with these statuses, and of so many persons."""
        named = {status.value: statuses.get(status, 0) for status in Status}
        return cls(**named, persons=persons)

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


def _seal(content: bytes, form: tuple[str, str]) -> bytes:
    return content + form[1].format(crc32c(content)).encode()


def _is_sealed(data: bytes, form: tuple[str, str]) -> bool:
    return data == _seal(data[: -len(form[1].format(""))], form)
