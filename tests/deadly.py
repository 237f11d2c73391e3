"""Files that end the process that reads them, as a bug in a native reader does.

Importing this module, which unpickling a `Deadly` does in every worker, makes addresses that start
with `deadly://` known: local files, whose reader dies of certain bytes.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileOpener, LocalFileSystem

from tests.synthetic import plain_image, write_shard

POISON = b"the reader dies of this"


@dataclass(frozen=True)
class Deadly:
    """Storage option of `deadly://`.

    Attributes:
        log: A file that gets one byte for each process that died.
        mended: A file; while it exists nothing is deadly.
    """

    log: Path
    mended: Path

    def num_deaths(self) -> int:
        """Processes that died so far."""
        return self.log.stat().st_size if self.log.exists() else 0


class DeadlyFileSystem(LocalFileSystem):
    """Local files that may end whoever reads them.

    Args:
        when: When they do.
    """

    protocol = "deadly"
    cachable = False

    def __init__(self, when: Deadly, **options: Any) -> None:
        super().__init__(**options)
        self._when = when

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return LocalFileSystem._strip_protocol(str(path).removeprefix("deadly://"))

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **options: Any) -> Any:
        data = Path(path).read_bytes()
        file = LocalFileOpener(path, mode, fs=self, **options)
        place = -1 if self._when.mended.exists() else data.find(POISON)
        return file if place < 0 else _DeadlyFile(file, place, self._when)


class _DeadlyFile:
    """A file whose reader dies when it passes a place."""

    def __init__(self, file: LocalFileOpener, place: int, when: Deadly) -> None:
        self._file = file
        self._place = place
        self._when = when

    def read(self, size: int = -1) -> bytes:
        data = bytes(self._file.read(size))
        if self._file.tell() > self._place:
            with self._when.log.open("ab") as log:
                log.write(b"x")
            os.kill(os.getpid(), signal.SIGKILL)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _DeadlyFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def write_deadly_shard(path: Path) -> None:
    """A tar of eight samples, of which the seventh is deadly."""
    images = {f"{i}": plain_image((i, i, i)) for i in range(8)}
    # beyond the image's end, where decoders do not look, and what is read ahead with its header
    images["6"] += bytes(1 << 22) + POISON
    write_shard(path, images)


fsspec.register_implementation("deadly", DeadlyFileSystem, clobber=True)
