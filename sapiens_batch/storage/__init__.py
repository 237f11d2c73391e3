"""Where bytes live: job directories (`Store`) and inputs, on local disks and object stores.

The only package that knows fsspec. What the bytes mean is left to the packages above.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sapiens_batch.storage.base import (
    Capabilities,
    MissingObjectError,
    ObjectInfo,
    Store,
    create_or_read,
)
from sapiens_batch.storage.local import LocalStore
from sapiens_batch.storage.memory import MemoryStore

__all__ = [
    "Capabilities",
    "MissingObjectError",
    "ObjectInfo",
    "Store",
    "create_or_read",
    "open_store",
]


def open_store(uri: str, storage_options: Mapping[str, Any] | None = None) -> Store:
    """The store at an address; nothing is read or written yet.

    Args:
        uri: A path, `file://`, `memory://name`, or any address that fsspec knows.
        storage_options: Passed to fsspec.

    Raises:
        DependencyError: The package for the scheme is not installed.
        StorageError: The scheme or the options are not known.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return LocalStore(uri)
    if scheme in ("file", "local"):
        return LocalStore(Path(unquote(urlsplit(uri).path)) if scheme == "file" else Path(rest))
    if scheme == "memory":
        return MemoryStore(rest.strip("/"))
    # imported here so that local jobs and light readers do not pay for fsspec
    from sapiens_batch.storage.fsspec_store import FsspecStore

    return FsspecStore(uri, storage_options)
