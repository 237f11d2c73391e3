"""What a store says about one object: which version it is, and when it was made.

Stores name the same fact differently. Reading the object is left to `storage.reading`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

_ETAG_FIELDS: Final = ("ETag", "etag", "blob_id")
_TIME_FIELDS: Final = ("mtime", "LastModified", "last_modified", "updated", "created")


def version_of(info: Mapping[str, Any]) -> str:
    """The etag where the store has one, else `size-mtime_ns`."""
    for field in _ETAG_FIELDS:
        if info.get(field):
            return str(info[field]).strip('"')
    return f"{size_of(info)}-{int(modified_s(info) * 1e9)}"


def size_of(info: Mapping[str, Any]) -> int:
    """Size in bytes; 0 where the store does not say."""
    return int(info.get("size") or 0)


def modified_s(info: Mapping[str, Any]) -> float:
    """Unix time at which the object was made or changed last; 0.0 where the store does not say."""
    for field in _TIME_FIELDS:
        value = info.get(field)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float) and value:
            return float(value)
    return 0.0


def local_info(status: os.stat_result) -> Mapping[str, Any]:
    """What fsspec says about a local file, without asking for it by name again."""
    return {"size": status.st_size, "mtime": status.st_mtime}


def fingerprint(size_bytes: int, version: str) -> str:
    """8 hex digits that change with an object's size or version, for plans of many objects."""
    return hashlib.sha256(f"{size_bytes} {version}".encode()).hexdigest()[:8]
