"""Stored bytes, compared with what was recorded of them before anyone sees them (I8).

Whole objects are compared by size and SHA-256, ranges by the CRC-32C of the blocks that they lie
in. Who records what is left to `protocol`.
"""

from __future__ import annotations

import hashlib
from typing import Final, Protocol

import google_crc32c

from sapiens_batch.errors import ProtocolError, StorageError
from sapiens_batch.storage.base import MissingObjectError, Store

BLOCK_BYTES: Final = 256 * 2**10
"""What one checksum covers: little to read for a footer or a column of a small table, and 1.6 kB of
checksums in the commit for a table of 50 MB."""

REMEDY: Final = "run `verify --repair`"
_KEPT_BLOCKS: Final = 16
_DIGITS: Final = 8


class Recorded(Protocol):
    """What is known of an object that is read in ranges; `protocol.documents.StoredObject`."""

    @property
    def key(self) -> str:
        """Key in the store."""
        ...

    @property
    def size_bytes(self) -> int:
        """Size."""
        ...

    @property
    def block_crc32c(self) -> str:
        """CRC-32C of each started block, 8 hex digits each."""
        ...


def crc32c(data: bytes | memoryview) -> str:
    """CRC-32C of bytes, 8 hex digits."""
    return f"{google_crc32c.value(bytes(data)):08x}"


def block_crc32c(data: bytes | memoryview) -> str:
    """CRC-32C of each started block, 8 hex digits each."""
    view = memoryview(data)
    return "".join(crc32c(view[at : at + BLOCK_BYTES]) for at in range(0, len(view), BLOCK_BYTES))


def damaged(key: str, what: str, remedy: str = REMEDY) -> ProtocolError:
    """The error for an object whose bytes are not what they were, and what to do about it."""
    return ProtocolError(f"{key}: {what}; the object is damaged, {remedy}")


def check_bytes(
    key: str, data: bytes | memoryview, *, size_bytes: int, sha256: str, remedy: str = REMEDY
) -> None:
    """Compare the bytes of an object, or of a part of one, with what was recorded of them.

    Raises:
        ProtocolError: They have another size or digest.
    """
    size = memoryview(data).nbytes
    if size != size_bytes:
        raise damaged(key, f"there are {size} bytes of {size_bytes}", remedy)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise damaged(key, f"the digest of {size} bytes is not the recorded one", remedy)


def read_range(store: Store, recorded: Recorded, start: int, stop: int) -> bytes:
    """Bytes `[start, stop)` of an object, which is not shorter than recorded; not checked else.

    Raises:
        MissingObjectError: The object is gone.
        ProtocolError: It is shorter than recorded.
        StorageError: It cannot be read.
    """
    try:
        return store.read_range(recorded.key, start, stop)
    except MissingObjectError:
        raise
    except StorageError as error:
        size = store.size(recorded.key)
        if size is None or size >= recorded.size_bytes:
            raise
        message = f"there are {size} bytes of {recorded.size_bytes}"
        raise damaged(recorded.key, message) from error


class BlockReader:
    """Ranges of one object, each block checked when it is read.

    Reads that follow each other share a block at their edge: a few such blocks are kept.

    Args:
        store: Where the object lies.
        recorded: What is known of it; blocks without a checksum are taken for damaged.
    """

    def __init__(self, store: Store, recorded: Recorded) -> None:
        self._store = store
        self._recorded = recorded
        self._kept: dict[int, memoryview] = {}

    def read(self, start: int, stop: int) -> memoryview:
        """Bytes `[start, stop)`, which lie inside the recorded size.

        Raises:
            MissingObjectError: The object is gone.
            ProtocolError: It is shorter than recorded, or a block has another checksum.
            StorageError: It cannot be read.
        """
        first, last = start // BLOCK_BYTES, (stop - 1) // BLOCK_BYTES
        held = self._kept.get(first)
        if first == last and held is not None:
            data = held
        else:
            data = self._fetch(first * BLOCK_BYTES, (last + 1) * BLOCK_BYTES)
            self._keep({first: data[:BLOCK_BYTES], last: data[(last - first) * BLOCK_BYTES :]})
        return data[start - first * BLOCK_BYTES : stop - first * BLOCK_BYTES]

    def _fetch(self, start: int, stop: int) -> memoryview:
        """Whole blocks, checked."""
        stop = min(stop, self._recorded.size_bytes)
        data = memoryview(read_range(self._store, self._recorded, start, stop))
        for at in range(0, len(data), BLOCK_BYTES):
            place = (start + at) // BLOCK_BYTES * _DIGITS
            expected = self._recorded.block_crc32c[place : place + _DIGITS]
            block = data[at : at + BLOCK_BYTES]
            if crc32c(block) != expected:
                what = f"bytes {start + at} to {start + at + len(block)} have a wrong checksum"
                raise damaged(self._recorded.key, what)
        return data

    def _keep(self, blocks: dict[int, memoryview]) -> None:
        # copies, so that a kept block does not hold the memory of a long read
        self._kept |= {number: memoryview(bytes(block)) for number, block in blocks.items()}
        while len(self._kept) > _KEPT_BLOCKS:
            self._kept.pop(next(iter(self._kept)))
