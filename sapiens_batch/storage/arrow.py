"""A store seen by Arrow: a read-only file system for pyarrow datasets.

Local folders are read by Arrow itself; for every other backend each read becomes a ranged request
of the store, with its retries. Listing is refused: readers open only what commits name (I3).
"""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
from pyarrow import fs

from sapiens_batch.storage.base import MissingObjectError, Store
from sapiens_batch.storage.local import LocalStore


def arrow_filesystem(store: Store) -> fs.FileSystem:
    """A file system whose paths are the store's keys."""
    if isinstance(store, LocalStore):
        return fs.SubTreeFileSystem(str(store.root), fs.LocalFileSystem())
    return fs.PyFileSystem(_StoreHandler(store))


class _StoreFile(io.RawIOBase):
    """One object as a seekable file."""

    def __init__(self, store: Store, key: str, size_bytes: int) -> None:
        self._store = store
        self._key = key
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
        stop = self._size_bytes
        if size is not None and size >= 0:
            stop = min(stop, self._position + size)
        if stop <= self._position:
            return b""
        data = self._store.read_range(self._key, self._position, stop)
        self._position = stop
        return data


class _StoreHandler(fs.FileSystemHandler):
    """Maps Arrow's calls to the store; everything that would write or list is refused."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _StoreHandler) and other._store.uri == self._store.uri

    def __hash__(self) -> int:
        return hash(self._store.uri)

    def get_type_name(self) -> str:
        return "sapiens_batch"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Any) -> list[fs.FileInfo]:
        sizes = [(path, self._store.size(path)) for path in paths]
        return [
            fs.FileInfo(path, fs.FileType.NotFound)
            if size is None
            else fs.FileInfo(path, fs.FileType.File, size=size)
            for path, size in sizes
        ]

    def open_input_file(self, path: str) -> pa.PythonFile:
        size = self._store.size(path)
        if size is None:
            raise MissingObjectError(f"{self._store.uri}/{path} does not exist")
        return pa.PythonFile(_StoreFile(self._store, path, size), mode="r")

    def open_input_stream(self, path: str) -> pa.PythonFile:
        return self.open_input_file(path)

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
