"""Objects too large for memory: written to a temporary file, then handed over as mapped bytes.

What is written is left to the exporters. The file has no name and goes with the process.
"""

from __future__ import annotations

import mmap
import tempfile
from types import TracebackType
from typing import BinaryIO, Self


class Spool:
    """A temporary file that becomes one object.

    Attributes:
        file: The file, open for reading and writing.
    """

    def __init__(self) -> None:
        self.file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `__exit__`)
        self._view: memoryview | None = None
        self._map: mmap.mmap | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._view is not None:
            self._view.release()
        if self._map is not None:
            self._map.close()
        self.file.close()

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes."""
        return self.file.write(data)

    def view(self) -> memoryview:
        """Everything that was written, mapped, not read; valid until the spool is left."""
        self.file.flush()
        size = self.file.seek(0, 2)
        if size == 0:
            return memoryview(b"")
        self._map = mmap.mmap(self.file.fileno(), size, access=mmap.ACCESS_READ)
        self._view = memoryview(self._map)
        return self._view
