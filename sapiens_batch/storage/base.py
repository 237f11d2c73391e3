"""The contract of an output store: what every backend of a job directory must do.

A store maps keys (relative, `/`-separated, unicode) to immutable objects. There is no overwrite and
no rename: an object is created once, whole, or not at all (invariant I6). Reading input shards is
the concern of `storage.inputs`, not of this contract.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from sapiens_batch.errors import ProtocolError, StorageError


class MissingObjectError(StorageError):
    """The object does not exist."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One listed object.

    Attributes:
        key: Key relative to the store.
        size_bytes: Size of the object.
        modified_s: Unix time of creation as the store reports it; 0.0 where it does not.
    """

    key: str
    size_bytes: int
    modified_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a probe found the store to do.

    Attributes:
        conditional_create: Whether a second create of the same key is refused.
        backend: Name of the backend, for `job.json`.
    """

    conditional_create: bool
    backend: str


@runtime_checkable
class Store(Protocol):
    """A job directory. Implementations are picklable and safe to use from several threads."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"

    @property
    def uri(self) -> str:
        """Absolute address of the directory, without credentials."""
        ...

    def create(self, key: str, data: bytes | memoryview) -> bool:
        """Create an object if its key is free; durable when this returns.

        A create whose response was lost is resolved by reading the object back: equal bytes mean
        that this call won. Callers put a unique `write_id` into documents for that reason.

        Returns:
            True when this call created the object, False when the key was already taken; then
            the existing object stays untouched.

        Raises:
            StorageError: The store refused or could not be reached.
        """
        ...

    def copy(self, source: str, key: str) -> bool:
        """Give an object a second name without moving its bytes through this machine.

        A hard link or a copy by the server; durable when this returns. Callers give a `key` that no
        other attempt uses: stores need not decide a race between two copies.

        Returns:
            True when this call made the object `key`, False when that was already taken; then the
            existing object stays untouched.

        Raises:
            MissingObjectError: There is no object `source`.
            StorageError: The store refused or could not be reached.
        """
        ...

    def read(self, key: str) -> bytes:
        """The whole object.

        Raises:
            MissingObjectError: The object does not exist.
            StorageError: The object cannot be read.
        """
        ...

    def read_range(self, key: str, start: int, stop: int | None = None) -> bytes:
        """Bytes `[start, stop)` of the object; without `stop` up to the end.

        A negative `start` counts from the end and takes no `stop`.

        Raises:
            StorageError: As for `read`, or fewer bytes came back than asked for.
        """
        ...

    def exists(self, key: str) -> bool:
        """Whether the object exists, never answered from a cache."""
        return self.size(key) is not None

    def size(self, key: str) -> int | None:
        """Size in bytes, or None where the object does not exist."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Every object whose key starts with the folder `prefix` (ends with `/` or is empty).

        Keys of one folder come sorted by code point; folders come one after the other, in an order
        that differs between stores. Never answered from a cache, and never held in memory as a
        whole; unfinished writes of a local backend are not listed.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove an object; a missing one is no error. For `gc` and the owner of an attempt."""
        ...

    def now_s(self) -> float | None:
        """The store's own clock, which dates its objects, found by making a short-lived one.

        None where the store gives its objects no time; nothing can be called old then.

        Raises:
            StorageError: The store refused or could not be reached.
        """
        ...

    def probe(self) -> Capabilities:
        """Find out what the store can do by trying it on a random key, and clean up.

        Raises:
            StorageError: The store cannot be written; the message names the address and the cause.
        """
        ...

    def adapted(self, capabilities: Capabilities) -> Store:
        """The same store, relying on no more than what a probe found."""
        return self

    def unfinished(self) -> Iterator[ObjectInfo]:
        """What interrupted writes left behind, under keys that `list` hides; for `gc`."""
        return iter(())


def create_or_read(store: Store, key: str, data: bytes) -> tuple[bytes, bool]:
    """Create an object, or read the one that has its key.

    Returns:
        The bytes under the key, and whether this call created them.

    Raises:
        StorageError: The store refused or could not be reached.
    """
    return (data, True) if store.create(key, data) else (store.read(key), False)


@contextmanager
def short_lived(store: Store, purpose: str) -> Iterator[str]:
    """A key of its own for an object that is removed on leaving."""
    key = f"{purpose}-{uuid.uuid4().hex}"
    try:
        yield key
    finally:
        store.delete(key)


def check_key(key: str) -> str:
    """The key itself, if it is a relative path that stays inside the store.

    Raises:
        ProtocolError: It does not; such a key can only come from a damaged or hostile document.
    """
    parts = key.split("/")
    if not key or "\0" in key or any(part in ("", ".", "..") for part in parts):
        raise ProtocolError(
            f"object key {key!r} leaves the job directory or is malformed; the document that names "
            "it is damaged, run `verify`"
        )
    return key


def check_range(uri: str, key: str, data: bytes, start: int, stop: int | None) -> bytes:
    """The data itself, if it is as long as the range that was asked for.

    Raises:
        StorageError: The store returned fewer bytes, or the object is shorter than the range.
    """
    expected = -start if start < 0 else (len(data) if stop is None else stop - start)
    if len(data) != expected:
        raise StorageError(
            f"{uri}/{key}: asked for {expected} bytes from offset {start}, got {len(data)}; "
            "the object is truncated or the connection broke, run `verify`"
        )
    return data
