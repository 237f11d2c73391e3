"""Bytes handed from one process to another through a file in memory, and small messages by pipe.

What the messages mean is left to `guard` and `decode_process`. Pixels never go through a pipe,
which would cost a context switch for every 64 KB.
"""

from __future__ import annotations

import math
import mmap
import os
import pickle
import select
import struct
import tempfile
import time
from typing import Any

import numpy as np

from sapiens_batch.records import Array

_LENGTH = struct.Struct("<Q")
_GROWTH_BYTES = 4 * 2**20


class MemoryFile:
    """A file without a name, in memory where the system can, that two processes map.

    Only one of them uses it at a time; they take turns by message. It grows and never shrinks.

    Args:
        descriptor: Descriptor of the file in this process; default: a new file.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = _new_file() if descriptor is None else descriptor
        self._map: mmap.mmap | None = None

    def write(self, data: bytes | Array) -> None:
        """Put bytes, or a contiguous array, at the start."""
        source = np.frombuffer(data, np.uint8)
        np.copyto(self._bytes(len(source)), source)

    def read_bytes(self, size_bytes: int) -> bytes:
        """A copy of the first bytes."""
        return self._bytes(size_bytes).tobytes()

    def read_array(self, shape: tuple[int, ...]) -> Array:
        """A copy of the first bytes as a uint8 array."""
        return self._bytes(math.prod(shape)).reshape(shape).copy()

    def close(self) -> None:
        """Forget the file; it vanishes when both processes have."""
        self._map = None
        os.close(self.descriptor)

    def _bytes(self, size_bytes: int) -> Array:
        if self._map is None or len(self._map) < size_bytes:
            needed = -(-max(size_bytes, 1) // _GROWTH_BYTES) * _GROWTH_BYTES
            if os.fstat(self.descriptor).st_size < needed:
                os.ftruncate(self.descriptor, needed)
            self._map = mmap.mmap(self.descriptor, os.fstat(self.descriptor).st_size)
        return np.frombuffer(self._map, np.uint8, size_bytes)


def _new_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("decoded")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def send(descriptor: int, message: object) -> None:
    """Write one message to a pipe.

    Raises:
        BrokenPipeError: The other process has ended.
    """
    data = pickle.dumps(message)
    view = memoryview(_LENGTH.pack(len(data)) + data)
    while view:
        view = view[os.write(descriptor, view) :]


def receive(descriptor: int, *, timeout_s: float | None = None) -> Any:
    """Read one message from a pipe.

    Raises:
        EOFError: The other process has ended.
        TimeoutError: Nothing came in time.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    (length,) = _LENGTH.unpack(_read_exactly(descriptor, _LENGTH.size, deadline))
    return pickle.loads(_read_exactly(descriptor, length, deadline))


def _read_exactly(descriptor: int, size_bytes: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < size_bytes:
        if deadline is not None:
            _wait(descriptor, deadline)
        part = os.read(descriptor, size_bytes - len(data))
        if not part:
            raise EOFError("the pipe is closed")
        data += part
    return bytes(data)


def _wait(descriptor: int, deadline: float) -> None:
    poll = select.poll()  # unlike select(), without a limit on the descriptor's number
    poll.register(descriptor, select.POLLIN | select.POLLHUP)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise TimeoutError
