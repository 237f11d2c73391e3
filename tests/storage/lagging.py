"""An object store whose listings lag behind its writes; reads by key are up to date."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem


class LaggingFileSystem(MemoryFileSystem):
    """Memory whose listings leave out what is younger than `lag_s`.

    Attributes:
        ignores_condition: Whether a second create of a key replaces the first, as some servers do.
    """

    protocol = "lagging"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    lag_s: ClassVar[float] = 0.0
    ignores_condition: ClassVar[bool] = False

    def find(self, path: str, **kwargs: Any) -> dict[str, Any]:
        newest_s = time.time() - self.lag_s
        found = super().find(path, **kwargs)
        return {name: info for name, info in found.items() if info["created"] <= newest_s}

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        mode = "overwrite" if self.ignores_condition else mode
        super().pipe_file(path, value, mode=mode, **kwargs)


def fresh_lagging_store(*, lag_s: float = 0.0, ignores_condition: bool = False) -> None:
    """Register the scheme `lagging://` with an empty store."""
    fsspec.register_implementation("lagging", LaggingFileSystem, clobber=True)
    LaggingFileSystem.store.clear()
    LaggingFileSystem.pseudo_dirs[:] = [""]
    LaggingFileSystem.lag_s = lag_s
    LaggingFileSystem.ignores_condition = ignores_condition
