"""Bytes that two processes share through a file in memory.

Pixels go this way and not as messages, which would cost a context switch for every 64 KB. Whose
turn it is to write is left to those who share it.
"""

from __future__ import annotations

import math
import mmap
import os
import sys
import tempfile
import weakref

import numpy as np

from sapiens_batch.records import Array

_GROWTH_BYTES = 4 * 2**20


class MemoryFile:
    """A file without a name, in memory where the system can, that two processes map.

    It grows as it is used, and vanishes when both have closed it, or have ended.

    Args:
        descriptor: Descriptor of the file in this process; default: a new file.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = _new_file() if descriptor is None else descriptor
        self._close = weakref.finalize(self, os.close, self.descriptor)
        self._map: mmap.mmap | None = None

    def array(self, offset: int, shape: tuple[int, ...]) -> Array:
        """The bytes from an offset on as a uint8 array: no copy, whoever writes there changes it.

        It outlives the file's closing, and its growth.
        """
        length = math.prod(shape)
        if self._map is None or len(self._map) < offset + length:
            self._grow(offset + length)
        assert self._map is not None
        return np.frombuffer(self._map, np.uint8, length, offset).reshape(shape)

    def trim(self, kept_bytes: int) -> None:
        """Give all memory back where the file holds more than so much; zeros are left."""
        held = os.fstat(self.descriptor).st_blocks * 512
        if held > kept_bytes and self._map is not None and sys.platform == "linux":
            self._map.madvise(mmap.MADV_REMOVE)

    def close(self) -> None:
        """Forget the file."""
        self._map = None
        self._close()

    def _grow(self, needed: int) -> None:
        rounded = -(-max(needed, 1) // _GROWTH_BYTES) * _GROWTH_BYTES
        if os.fstat(self.descriptor).st_size < rounded:
            os.ftruncate(self.descriptor, rounded)
        self._map = mmap.mmap(self.descriptor, os.fstat(self.descriptor).st_size)


def _new_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("shared")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
