"""Messages between two processes: pickled values over one descriptor, with a limit on waiting.

What they mean is left to those who speak. Large arrays are better handed over in a `MemoryFile`.
"""

from __future__ import annotations

import os
import pickle
import select
import struct
import time
from typing import Any

_LENGTH = struct.Struct("<Q")
_READ_BYTES = 2**16


class Channel:
    """One end of a connection.

    Args:
        descriptor: Of a socket that is connected to the other end.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._received = bytearray()
        self._poll = select.poll()  # unlike select(), without a limit on the descriptor's number
        self._poll.register(descriptor, select.POLLIN)

    def send(self, message: object) -> None:
        """Send a message.

        Raises:
            ConnectionError: The other process has ended.
        """
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        view = memoryview(_LENGTH.pack(len(data)) + data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def receive(self, timeout_s: float | None = None) -> Any:
        """Wait for a message.

        Raises:
            EOFError: The other process has ended.
            ConnectionError: It has ended without taking what it was sent.
            TimeoutError: The message was not there in time.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        (length,) = _LENGTH.unpack(self._take(_LENGTH.size, deadline))
        return pickle.loads(self._take(length, deadline))

    def _take(self, size_bytes: int, deadline: float | None) -> bytes:
        while len(self._received) < size_bytes:
            if deadline is not None and not self._poll.poll(
                max(0.0, deadline - time.monotonic()) * 1000
            ):
                raise TimeoutError
            part = os.read(self._descriptor, _READ_BYTES)
            if not part:
                raise EOFError("the other process has ended")
            self._received += part
        taken = bytes(memoryview(self._received)[:size_bytes])
        del self._received[:size_bytes]
        return taken
