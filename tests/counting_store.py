"""A job directory on local disk that writes down every request, of every process.

Picklable, so that Ray's workers count too: each request is one line that is appended to a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sapiens_batch.storage import LocalStore, ObjectInfo


@dataclass(frozen=True)
class Request:
    """One request: what was asked of which key, or folder."""

    kind: str
    key: str


class CountingStore(LocalStore):
    """A `LocalStore` whose requests are kept in `log`."""

    def __init__(self, root: str | os.PathLike[str], log: Path) -> None:
        super().__init__(root)
        self._log = log

    def requests(self) -> list[Request]:
        """Every request so far, in the order in which they came."""
        lines = self._log.read_text().splitlines()
        return [Request(*line.split(" ", 1)) for line in lines]

    def _note(self, kind: str, key: str) -> None:
        line = f"{kind} {key}\n".encode()
        descriptor = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def create(self, key: str, data: bytes | memoryview) -> bool:
        self._note("create", key)
        return super().create(key, data)

    def copy(self, source: str, key: str) -> bool:
        self._note("copy", key)
        return super().copy(source, key)

    def read(self, key: str) -> bytes:
        self._note("read", key)
        return super().read(key)

    def read_range(self, key: str, start: int, stop: int | None = None) -> bytes:
        self._note("read", key)
        return super().read_range(key, start, stop)

    def size(self, key: str) -> int | None:
        self._note("look", key)
        return super().size(key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._note("list", prefix)
        return super().list(prefix)

    def delete(self, key: str) -> None:
        self._note("delete", key)
        super().delete(key)
