"""Objects too large for memory: written to a temporary file, then handed over as mapped bytes.

What is written is left to the exporters. The file has no name and goes with the process.
"""

from __future__ import annotations

import json
import mmap
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any, BinaryIO

_SEPARATOR = b",\n"


class Spool(ExitStack):
    """A temporary `file`, open for reading and writing, that becomes one object."""

    def __init__(self) -> None:
        super().__init__()
        self.file: BinaryIO = self.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 (closed on leaving)

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes."""
        return self.file.write(data)

    def view(self) -> memoryview:
        """Everything that was written, mapped, not read; valid until the spool is left."""
        self.file.flush()
        size = self.file.seek(0, 2)
        if size == 0:
            return memoryview(b"")
        mapped = mmap.mmap(self.file.fileno(), size, access=mmap.ACCESS_READ)
        return self.enter_context(memoryview(self.enter_context(mapped)))


class JsonSpool(Spool):
    """A spool of `count` JSON values with commas between them: a shard's piece of a list."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def add(self, value: Mapping[str, Any]) -> None:
        """Append a value."""
        if self.count:
            self.write(_SEPARATOR)
        self.write(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
        self.count += 1


def write_pieces(spool: Spool, pieces: Iterable[Iterable[bytes]]) -> None:
    """Append the values of all shards' pieces as one list's."""
    for number, piece in enumerate(pieces):
        if number:
            spool.write(_SEPARATOR)
        for block in piece:
            spool.write(block)
