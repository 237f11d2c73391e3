"""Object names from sample keys: readable, unique where keys are, and safe in every store.

A key is the source's own string and may hold anything. The exact key is always beside the name in
the exported records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

MAX_PART_BYTES = 160
"""Leaves room for suffixes below the 255 bytes that file systems allow."""

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def safe_name(key: str) -> str:
    """The key with every letter but `A-Za-z0-9_-/` written as `~` and its hex code points.

    There is no dot in it, because WebDataset ends a sample's name at the first one.
    """
    parts = key.split("/")
    if not all(parts):
        parts = [key]
    return "/".join(_safe_part(part) for part in parts) or "~"


class UniqueNames:
    """Safe names for the samples of one shard; the second of equal keys gets its index."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def name(self, key: str, index: int) -> str:
        """A name that no other sample of the shard has."""
        name = safe_name(key)
        if name in self._taken:
            name = f"{name}~{index}"
        self._taken.add(name)
        return name


def _safe_part(part: str) -> str:
    safe = "".join(letter if letter in _PLAIN else f"~{ord(letter):x}~" for letter in part)
    if len(safe) <= MAX_PART_BYTES:
        return safe
    digest = hashlib.sha256(part.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return f"{safe[: MAX_PART_BYTES - 17]}~{digest}"
