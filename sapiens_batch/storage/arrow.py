"""A store seen by Arrow: a read-only file system for pyarrow datasets.

Objects of which checksums are recorded are read through `checked`, from local folders too, so that
whoever holds a dataset of labels is never given damaged values (I8). Listing is refused: readers
open only what commits name (I3).
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from sapiens_batch.errors import SapiensBatchError
from sapiens_batch.storage.base import MissingObjectError, Store
from sapiens_batch.storage.checked import BlockReader, Recorded

_KEPT_ERRORS: Final = 64  # more files than Arrow reads at once

_Read = Callable[[int, int], bytes | memoryview]
"""Bytes `[start, stop)` of one object."""


def arrow_filesystem(
    store: Store, recorded: Callable[[str], Recorded | None] | None = None
) -> fs.FileSystem:
    """A file system whose paths are the store's keys.

    Args:
        store: Where the objects lie.
        recorded: What is known of the object of a key, None where it is read without a check, as
            files of others are. Picklable, if the file system is to be.
    """
    return fs.PyFileSystem(_StoreHandler(store, recorded))


def read_error(dataset: ds.Dataset, error: Exception) -> SapiensBatchError | None:
    """Our error where a library that reads a dataset has only kept its text, as DuckDB does.

    Args:
        dataset: What was read.
        error: What the library raised.
    """
    handler = getattr(getattr(dataset, "filesystem", None), "handler", None)
    errors = handler.errors if isinstance(handler, _StoreHandler) else ()
    return next((one for one in errors if str(one) in str(error)), None)


class _StoreFile(io.RawIOBase):
    """One object as a seekable file."""

    def __init__(self, read: _Read, size_bytes: int) -> None:
        self._read = read
        self._size_bytes = size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}
        self._position = max(0, base[whence] + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        return bytes(self.read_buffer(size))

    def read_buffer(self, size: int | None = -1) -> bytes | memoryview:
        """As `read`; Arrow takes what it gives without a copy."""
        stop = self._size_bytes
        if size is not None and size >= 0:
            stop = min(stop, self._position + size)
        if stop <= self._position:
            return b""
        data = self._read(self._position, stop)
        self._position = stop
        return data


def _unrecorded(_: str) -> None:
    return None


class _StoreHandler(fs.FileSystemHandler):
    """Maps Arrow's calls to the store; everything that would write or list is refused."""

    def __init__(self, store: Store, recorded: Callable[[str], Recorded | None] | None) -> None:
        self._store = store
        self._recorded = recorded or _unrecorded
        self.errors: deque[SapiensBatchError] = deque(maxlen=_KEPT_ERRORS)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _StoreHandler) and other._store.uri == self._store.uri

    def __hash__(self) -> int:
        return hash(self._store.uri)

    def get_type_name(self) -> str:
        return "sapiens_batch"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Any) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def open_input_file(self, path: str) -> pa.PythonFile:
        known = self._recorded(path)
        if known is not None:
            return self._file(BlockReader(self._store, known).read, known.size_bytes)
        found = self._store.size(path)
        if found is None:
            raise MissingObjectError(f"{self._store.uri}/{path} does not exist")
        return self._file(partial(self._store.read_range, path), found)

    def open_input_stream(self, path: str) -> pa.PythonFile:
        return self.open_input_file(path)

    def _file(self, read: _Read, size_bytes: int) -> pa.PythonFile:
        def noted(start: int, stop: int) -> bytes | memoryview:
            try:
                return read(start, stop)
            except SapiensBatchError as error:
                self.errors.append(error)
                raise

        return pa.PythonFile(_StoreFile(noted, size_bytes), mode="r")

    def _info(self, path: str) -> fs.FileInfo:
        known = self._recorded(path)
        size = self._store.size(path) if known is None else known.size_bytes
        kind = fs.FileType.NotFound if size is None else fs.FileType.File
        return fs.FileInfo(path, kind, size=size)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("a job directory is read by key and written by its own job")

    get_file_info_selector = _refuse
    create_dir = _refuse
    delete_dir = _refuse
    delete_dir_contents = _refuse
    delete_root_dir_contents = _refuse
    delete_file = _refuse
    move = _refuse
    copy_file = _refuse
    open_output_stream = _refuse
    open_append_stream = _refuse
