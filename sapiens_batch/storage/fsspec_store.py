"""A job directory on an object store, through fsspec (s3, gcs, abfs and others).

Objects are created with a conditional put. A put whose answer was lost, or that was refused because
the store already has the key, is resolved by reading the object back: equal bytes mean that this
call won. Caches are off. Which stores honour the condition is found out by `probe`, not assumed.
Refused credentials are looked up afresh once, because those of a long job expire.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeVar

import fsspec

from sapiens_batch.errors import StorageError
from sapiens_batch.storage.addresses import public_text, public_uri
from sapiens_batch.storage.base import (
    Capabilities,
    MissingObjectError,
    ObjectInfo,
    Store,
    check_key,
    check_range,
    short_lived,
)
from sapiens_batch.storage.failures import is_authority, is_taken, is_transient
from sapiens_batch.storage.filesystems import connect, is_s3
from sapiens_batch.storage.versions import modified_s

Result = TypeVar("Result")

_log = logging.getLogger(__name__)

ATTEMPTS = 6
FIRST_DELAY_S = 0.2
# With doubling and jitter, six attempts span 3 to 12 seconds, on top of the client's own retries.


PAGE_OBJECTS: Final = 1000
"""The most that S3 lists at once."""


class FsspecStore(Store):
    """A `Store` behind any fsspec file system whose `pipe_file` writes whole objects.

    Args:
        uri: fsspec address of the folder.
        storage_options: Passed to fsspec; kept in memory only.
        conditional_create: False for a store that was probed not to refuse a second create; a
            create then looks first, which is safe with one writer only.
        retry_delay_s: First pause before a request is repeated; doubled each time.

    Raises:
        DependencyError: The package for this scheme is not installed.
        StorageError: fsspec does not know the scheme or the options.
    """

    def __init__(
        self,
        uri: str,
        storage_options: Mapping[str, Any] | None = None,
        *,
        conditional_create: bool = True,
        retry_delay_s: float = FIRST_DELAY_S,
    ) -> None:
        self._address = uri.rstrip("/")
        self._options = dict(storage_options or {})
        self._conditional_create = conditional_create
        self._retry_delay_s = retry_delay_s
        self._fs, self._root = _connect(self._address, self._options)
        self._connecting = threading.Lock()

    def __reduce__(self) -> tuple[Callable[..., FsspecStore], tuple[Any, ...]]:
        return partial(FsspecStore, **self._settings()), (self._address, self._options)

    def _settings(self) -> dict[str, Any]:
        return {
            "conditional_create": self._conditional_create,
            "retry_delay_s": self._retry_delay_s,
        }

    @property
    def uri(self) -> str:
        """Address of the folder without user and password."""
        return public_uri(self._address)

    def create(self, key: str, data: bytes | memoryview) -> bool:
        """See `Store.create`."""
        path = self._path(key)
        if not self._conditional_create and self.exists(key):
            return False
        payload = bytes(data)
        mode = "create" if self._conditional_create else "overwrite"
        try:
            self._retrying("write", key, lambda: self._fs.pipe_file(path, payload, mode=mode))
        except _TakenError:
            return self._is_ours(key, payload)
        except StorageError:
            if self._landed(key, payload):
                return True
            raise
        return True

    def copy(self, source: str, key: str) -> bool:
        """See `Store.copy`; done by the server, whatever the size."""
        original, target = self._path(source), self._path(key)
        if self.exists(key):
            return False
        self._retrying("copy", source, lambda: self._fs.cp_file(original, target))
        return True

    def read(self, key: str) -> bytes:
        """See `Store.read`."""
        path = self._path(key)
        data: bytes = self._retrying("read", key, lambda: self._fs.cat_file(path))
        return data

    def read_range(self, key: str, start: int, stop: int | None = None) -> bytes:
        """See `Store.read_range`."""
        path = self._path(key)
        if start == stop:
            if self.size(key) is None:
                raise MissingObjectError(f"{self.uri}/{key} does not exist")
            return b""

        def attempt() -> bytes:
            data = self._fs.cat_file(path, start=start, end=stop)
            try:
                return check_range(self.uri, key, data, start, stop)
            except StorageError as error:
                if (self.size(key) or 0) < max(stop or 0, -start):
                    raise _BeyondEndError(str(error)) from error
                raise

        return self._retrying("read", key, attempt)

    def size(self, key: str) -> int | None:
        """See `Store.size`."""
        path = self._path(key)
        try:
            info = self._retrying("look at", key, lambda: self._fs.info(path))
        except MissingObjectError:
            return None
        return int(info["size"]) if info["type"] == "file" else None

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See `Store.list`."""
        folder = self._path(prefix.removesuffix("/")) if prefix else self._root
        try:
            if is_s3(self._fs):
                yield from self._s3_pages(prefix, folder)
                return
            # fsspec's listing is one dictionary, about a kilobyte an object
            found = self._retrying("list", prefix, lambda: self._fs.find(folder, detail=True))
        except MissingObjectError:
            return
        for path in sorted(found):
            info = found[path]
            yield ObjectInfo(path[len(self._root) + 1 :], int(info["size"]), modified_s(info))

    def _s3_pages(self, prefix: str, folder: str) -> Iterator[ObjectInfo]:
        """A listing by S3's own request, page by page: a million objects need no memory."""
        bucket, path, _ = self._fs.split_path(f"{folder}/")
        skip = len(self._root) - len(bucket)
        wanted = {"Bucket": bucket, "Prefix": path, "MaxKeys": PAGE_OBJECTS, **self._fs.req_kw}
        while True:
            page = self._retrying(
                "list", prefix, lambda: self._fs.call_s3("list_objects_v2", **wanted)
            )
            for entry in page.get("Contents", ()):
                # some servers list the folders that other tools made as empty objects
                if not entry["Key"].endswith("/"):
                    modified = entry["LastModified"].timestamp()
                    yield ObjectInfo(entry["Key"][skip:], int(entry["Size"]), modified)
            if not page.get("IsTruncated"):
                return
            wanted["ContinuationToken"] = page["NextContinuationToken"]

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        path = self._path(key)
        try:
            self._retrying("delete", key, lambda: self._fs.rm_file(path))
        except MissingObjectError:
            return

    def now_s(self) -> float | None:
        """See `Store.now_s`."""
        with short_lived(self, "clock") as key:
            self.create(key, key.encode())
            info = self._retrying("look at", key, lambda: self._fs.info(self._path(key)))
        return modified_s(info) or None

    def probe(self) -> Capabilities:
        """See `Store.probe`."""
        with short_lived(self, "probe") as key:
            first = f"first {key}".encode()
            self.create(key, first)
            refused = not self.create(key, b"second") and self.read(key) == first
        return Capabilities(
            conditional_create=refused and self._conditional_create,
            backend=self._address.partition("://")[0],
        )

    def adapted(self, capabilities: Capabilities) -> FsspecStore:
        """See `Store.adapted`."""
        if capabilities.conditional_create or not self._conditional_create:
            return self
        settings = {**self._settings(), "conditional_create": False}
        return FsspecStore(self._address, self._options, **settings)

    def _path(self, key: str) -> str:
        return f"{self._root}/{check_key(key)}"

    def _is_ours(self, key: str, payload: bytes) -> bool:
        """Whether the object that took a key is the one that this call sent."""
        return self.size(key) == len(payload) and self.read(key) == payload

    def _landed(self, key: str, payload: bytes) -> bool:
        """Whether a create that failed in the end was carried out all the same."""
        try:
            return self._is_ours(key, payload)
        except StorageError:
            return False

    def _retrying(self, verb: str, key: str, operation: Callable[[], Result]) -> Result:
        """Run an operation, again while the store is busy, and name what went wrong otherwise."""
        delay_s = self._retry_delay_s
        refreshed = False
        for attempt in range(ATTEMPTS):
            connection = self._fs
            try:
                return operation()
            except _BeyondEndError:
                raise
            except Exception as error:  # clients raise what they like, also outside OSError
                if verb == "write" and is_taken(error):
                    raise _TakenError(key) from error
                if is_authority(error) and not refreshed and attempt < ATTEMPTS - 1:
                    refreshed = True
                    _log.info("%s refused the credentials, which are looked up afresh", self.uri)
                    self._reconnect(connection)
                    continue
                if attempt == ATTEMPTS - 1 or not is_transient(error):
                    raise self._refused(verb, key, error) from error
                level = logging.WARNING if attempt else logging.DEBUG
                _log.log(level, "cannot %s %s, tried again: %s", verb, key, _cause(error))
            # Jitter keeps many workers from coming back at the same moment.
            time.sleep(delay_s * random.uniform(0.5, 1.5))
            delay_s *= 2
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _reconnect(self, refused: fsspec.AbstractFileSystem) -> None:
        """Replace a connection whose credentials were refused, unless another thread has."""
        with self._connecting:
            if self._fs is refused:
                self._fs, self._root = _connect(self._address, self._options)

    def _refused(self, verb: str, key: str, error: Exception) -> StorageError:
        if isinstance(error, StorageError):
            return error
        where = f"{self.uri}/{key}"
        if isinstance(error, FileNotFoundError) and verb != "write":
            return MissingObjectError(f"{where} does not exist")
        return StorageError(
            f"cannot {verb} {where}: {_cause(error)}; check the address, the bucket, the rights "
            "and the credentials in storage_options"
        )


def _cause(error: Exception) -> str:
    return public_text(f"{type(error).__name__}: {error}")


class _BeyondEndError(StorageError):
    """The object is shorter than the range that was asked for; asking again does not help."""


class _TakenError(Exception):
    """The store refused a create because the key is taken."""


def _connect(uri: str, options: Mapping[str, Any]) -> tuple[fsspec.AbstractFileSystem, str]:
    fs, root = connect(uri, {**options, "skip_instance_cache": True}, StorageError)
    return fs, root.rstrip("/")
