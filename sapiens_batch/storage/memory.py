"""A job directory in this process's memory, for tests and for trying things out.

Stores with the same name are the same store everywhere in the process, also after pickling; other
processes (Ray workers) see an empty one. It is the reference that the other backends are held to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from sapiens_batch.storage.base import (
    Capabilities,
    MissingObjectError,
    ObjectInfo,
    Store,
    check_key,
    check_range,
)

# Shared by all instances on purpose: the process's memory plays the part of the bucket.
_OBJECTS: dict[str, dict[str, tuple[bytes, float]]] = {}
_LOCK = threading.Lock()


class MemoryStore(Store):
    """A `Store` in a dictionary.

    Args:
        name: Which of the process's memory stores.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def uri(self) -> str:
        """`memory://` and the name."""
        return f"memory://{self.name}"

    @property
    def _objects(self) -> dict[str, tuple[bytes, float]]:
        return _OBJECTS.setdefault(self.name, {})

    def create(self, key: str, data: bytes | memoryview) -> bool:
        """See `Store.create`."""
        check_key(key)
        with _LOCK:
            if key in self._objects:
                return False
            self._objects[key] = (bytes(data), time.time())
        return True

    def copy(self, source: str, key: str) -> bool:
        """See `Store.copy`."""
        return self.create(key, self.read(source))

    def read(self, key: str) -> bytes:
        """See `Store.read`."""
        found = self._objects.get(check_key(key))
        if found is None:
            raise MissingObjectError(f"{self.uri}/{key} does not exist")
        return found[0]

    def read_range(self, key: str, start: int, stop: int | None = None) -> bytes:
        """See `Store.read_range`."""
        return check_range(self.uri, key, self.read(key)[start:stop], start, stop)

    def size(self, key: str) -> int | None:
        """See `Store.size`."""
        found = self._objects.get(check_key(key))
        return None if found is None else len(found[0])

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See `Store.list`."""
        with _LOCK:
            found = sorted(item for item in self._objects.items() if item[0].startswith(prefix))
        for key, (data, modified_s) in found:
            yield ObjectInfo(key, len(data), modified_s)

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        with _LOCK:
            self._objects.pop(check_key(key), None)

    def now_s(self) -> float:
        """See `Store.now_s`."""
        return time.time()

    def probe(self) -> Capabilities:
        """See `Store.probe`."""
        return Capabilities(conditional_create=True, backend="memory")
