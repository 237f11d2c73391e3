"""Compare stored objects with what a document says of them: presence, size, checksum.

Which objects, and what is in them, is left to the caller. Large objects are read in pieces, so that
memory does not depend on them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Final

from sapiens_batch.protocol.documents import StoredObject
from sapiens_batch.storage import MissingObjectError, Store
from sapiens_batch.verify.report import Fault

READ_THREADS: Final = 8
PIECE_BYTES: Final = 16 * 2**20
_WINDOW: Final = 256


@dataclass(frozen=True, slots=True)
class ObjectCheck:
    """What became of the check of one object.

    Attributes:
        stored: The object as it should be.
        fault: What is wrong, or None.
        message: What exactly.
        read_bytes: Bytes that were read and compared; 0 where only the size was looked at.
    """

    stored: StoredObject
    fault: Fault | None = None
    message: str = ""
    read_bytes: int = 0


def check_objects(
    store: Store, objects: Iterable[StoredObject], sample_fraction: float
) -> Iterator[ObjectCheck]:
    """Check objects, several at a time, in order.

    Args:
        store: The job directory.
        objects: What a commit or receipt names.
        sample_fraction: Share of the objects to read; of the others the size is compared. The
            choice follows from the recorded checksum, so that checks can be repeated.
    """
    iterator = iter(objects)
    with ThreadPoolExecutor(READ_THREADS) as pool:
        while window := list(islice(iterator, _WINDOW)):
            yield from pool.map(lambda one: _check(store, one, sample_fraction), window)


def _check(store: Store, stored: StoredObject, sample_fraction: float) -> ObjectCheck:
    size = store.size(stored.key)
    if size is None:
        return ObjectCheck(stored, Fault.OBJECT_MISSING, "the object is gone")
    if size != stored.size_bytes:
        message = f"{size} bytes, {stored.size_bytes} are recorded"
        return ObjectCheck(stored, Fault.OBJECT_SIZE, message)
    if not is_sampled(stored, sample_fraction):
        return ObjectCheck(stored)
    try:
        digest = _digest(store, stored)
    except MissingObjectError:
        return ObjectCheck(stored, Fault.OBJECT_MISSING, "the object is gone")
    if digest != stored.sha256:
        message = f"sha256 {digest[:12]}, {stored.sha256[:12]} is recorded"
        return ObjectCheck(stored, Fault.OBJECT_CHECKSUM, message, size)
    return ObjectCheck(stored, read_bytes=size)


def is_sampled(stored: StoredObject, sample_fraction: float) -> bool:
    """Whether an object belongs to the share that is read."""
    return int(stored.sha256[:8], 16) < sample_fraction * 2**32


def _digest(store: Store, stored: StoredObject) -> str:
    digest = hashlib.sha256()
    for start in range(0, stored.size_bytes, PIECE_BYTES):
        stop = min(start + PIECE_BYTES, stored.size_bytes)
        digest.update(store.read_range(stored.key, start, stop))
    return digest.hexdigest()
