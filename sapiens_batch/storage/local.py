"""A job directory on a POSIX file system.

An object is written to a hidden temporary file, flushed, and linked to its name, so that it appears
whole or not at all and a second create is refused by the kernel (I6). The folder is flushed before
`create` returns. Temporary files left by a crash are never listed; removing them is left to `gc`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from enum import Enum, auto
from pathlib import Path
from typing import BinaryIO

from sapiens_batch.errors import StorageError
from sapiens_batch.storage.base import (
    Capabilities,
    MissingObjectError,
    ObjectInfo,
    Store,
    check_key,
    check_range,
    short_lived,
)

TEMPORARY_SUFFIX = ".partial"
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}


class _Placed(Enum):
    """How a finished file came by its name.

    Attributes:
        LINKED: By a hard link, which the kernel refuses where the name is taken.
        RENAMED: By a rename, because the folder has no hard links; two writers may both succeed.
        TAKEN: It did not: the name is another file's.
    """

    LINKED = auto()
    RENAMED = auto()
    TAKEN = auto()


class LocalStore(Store):
    """A `Store` in a local or mounted folder, which is made by the first create.

    Args:
        root: The folder; made absolute.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).expanduser().absolute()

    @property
    def uri(self) -> str:
        """Absolute path of the folder."""
        return str(self.root)

    def create(self, key: str, data: bytes | memoryview) -> bool:
        """See `Store.create`."""
        return self._put("write", key, lambda file: file.write(data)) is not _Placed.TAKEN

    def copy(self, source: str, key: str) -> bool:
        """See `Store.copy`; bytes are copied only where the folder cannot link."""
        original, target = self._path(source), self._path(key)
        try:
            _make_folders(target.parent)
            os.link(original, target)
            _flush_folder(target.parent)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise self._refused("copy", source, error) from error
            return self._copy_bytes(original, key)
        return True

    def read(self, key: str) -> bytes:
        """See `Store.read`."""
        try:
            return self._path(key).read_bytes()
        except OSError as error:
            raise self._refused("read", key, error) from error

    def read_range(self, key: str, start: int, stop: int | None = None) -> bytes:
        """See `Store.read_range`."""
        try:
            with self._path(key).open("rb") as file:
                if start < 0:
                    start_from_end = min(-start, file.seek(0, os.SEEK_END))
                    file.seek(-start_from_end, os.SEEK_END)
                else:
                    file.seek(start)
                data = file.read(-1 if stop is None else stop - start)
        except OSError as error:
            raise self._refused("read", key, error) from error
        return check_range(self.uri, key, data, start, stop)

    def size(self, key: str) -> int | None:
        """See `Store.size`."""
        path = self._path(key)
        try:
            return path.stat().st_size if path.is_file() else None
        except OSError as error:
            raise self._refused("look at", key, error) from error

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See `Store.list`."""
        folder = self.root / check_key(prefix.removesuffix("/")) if prefix else self.root
        try:
            yield from _walk(folder, prefix)
        except OSError as error:
            raise self._refused("list", prefix, error) from error

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        try:
            self._path(key).unlink(missing_ok=True)
        except NotADirectoryError:
            return
        except OSError as error:
            raise self._refused("delete", key, error) from error

    def now_s(self) -> float:
        """See `Store.now_s`; the clock of the machine that serves the folder."""
        with short_lived(self, "clock") as key:
            self.create(key, b"")
            try:
                return self._path(key).stat().st_mtime
            except OSError as error:
                raise self._refused("look at", key, error) from error

    def probe(self) -> Capabilities:
        """See `Store.probe`."""
        with short_lived(self, "probe") as key:
            placed = self._put("write", key, lambda file: file.write(b"probe"))
        return Capabilities(conditional_create=placed is _Placed.LINKED, backend="local")

    def unfinished(self) -> Iterator[ObjectInfo]:
        """See `Store.unfinished`."""
        for path in self.root.rglob(f".*{TEMPORARY_SUFFIX}"):
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                key = path.relative_to(self.root).as_posix()
                yield ObjectInfo(key, stat.st_size, stat.st_mtime)

    def _put(self, verb: str, key: str, write: Callable[[BinaryIO], object]) -> _Placed:
        """Write a temporary file and give it its name; leaves no temporary file, whatever fails."""
        target = self._path(key)
        temporary = target.with_name(f".{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")
        try:
            _make_folders(target.parent)
            try:
                with temporary.open("xb") as file:
                    write(file)
                    file.flush()
                    os.fsync(file.fileno())
                placed = _place(temporary, target)
            finally:
                temporary.unlink(missing_ok=True)
            _flush_folder(target.parent)
        except OSError as error:
            raise self._refused(verb, key, error) from error
        return placed

    def _copy_bytes(self, original: Path, key: str) -> bool:
        def write(file: BinaryIO) -> None:
            with original.open("rb") as whole:
                shutil.copyfileobj(whole, file)

        return self._put("copy", key, write) is not _Placed.TAKEN

    def _path(self, key: str) -> Path:
        return self.root / check_key(key)

    def _refused(self, verb: str, key: str, error: OSError) -> StorageError:
        where = f"{self.uri}/{key}" if key else self.uri
        if isinstance(error, FileNotFoundError | NotADirectoryError) and verb in ("read", "copy"):
            return MissingObjectError(f"{where} does not exist")
        cause = error.strerror or str(error)
        return StorageError(
            f"cannot {verb} {where}: {cause}; check that the folder exists or can be made, its "
            "rights, and the free space"
        )


def _place(temporary: Path, target: Path) -> _Placed:
    """Give a finished file its name unless that is taken."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        # NFS may lose the reply to a link that was made; the link count tells.
        return _Placed.LINKED if temporary.stat().st_nlink == 2 else _Placed.TAKEN
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if target.exists():
            return _Placed.TAKEN
        temporary.replace(target)
        return _Placed.RENAMED
    return _Placed.LINKED


def _make_folders(folder: Path) -> None:
    """Make missing folders and flush the parents, so that the names survive a power cut."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _walk(folder: Path, prefix: str) -> Iterator[ObjectInfo]:
    """Files below a folder in key order, skipping what is unfinished or just deleted."""
    try:
        entries = [entry for entry in os.scandir(folder) if not _is_temporary(entry.name)]
    except (FileNotFoundError, NotADirectoryError):
        return
    # "a/b" sorts before "a.b" as a path component but after it as a key: compare with the slash.
    entries.sort(key=lambda entry: entry.name + "/" if entry.is_dir() else entry.name)
    for entry in entries:
        if entry.is_dir():
            yield from _walk(folder / entry.name, f"{prefix}{entry.name}/")
            continue
        try:
            stat = entry.stat()
        except FileNotFoundError:
            continue
        # a link has its original's time of writing, and its own in the time of the last change
        modified_s = max(stat.st_mtime, stat.st_ctime)
        yield ObjectInfo(f"{prefix}{entry.name}", stat.st_size, modified_s)


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(TEMPORARY_SUFFIX)
