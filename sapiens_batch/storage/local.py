"""A job directory on a POSIX file system.

An object is written to a hidden temporary file, flushed, and linked to its name, so that it appears
whole or not at all and a second create is refused by the kernel (I6). The folder is flushed before
`create` returns. Temporary files left by a crash are never listed; removing them is left to `gc`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from sapiens_batch.errors import StorageError
from sapiens_batch.storage.base import (
    Capabilities,
    MissingObjectError,
    ObjectInfo,
    check_key,
    check_range,
)

TEMPORARY_SUFFIX = ".partial"
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}


class LocalStore:
    """A `Store` in a local or mounted folder, which is made by the first create.

    Args:
        root: The folder; made absolute.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).expanduser().absolute()

    def __repr__(self) -> str:
        return f"LocalStore({str(self.root)!r})"

    @property
    def uri(self) -> str:
        """Absolute path of the folder."""
        return str(self.root)

    def create(self, key: str, data: bytes | memoryview) -> bool:
        """See `Store.create`."""
        target = self._path(key)
        temporary = target.with_name(f".{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")
        try:
            _make_folders(target.parent)
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                created = _link(temporary, target)
            finally:
                temporary.unlink(missing_ok=True)
            _flush_folder(target.parent)
        except OSError as error:
            raise self._refused("write", key, error) from error
        return created

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

    def exists(self, key: str) -> bool:
        """See `Store.exists`."""
        return self.size(key) is not None

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

    def probe(self) -> Capabilities:
        """See `Store.probe`."""
        folder = self.root / f".{uuid.uuid4().hex}{TEMPORARY_SUFFIX}"
        try:
            _make_folders(self.root)
            folder.mkdir()
            first, second = folder / "first", folder / "second"
            first.write_bytes(b"first")
            try:
                os.link(first, second)
                links = True
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                links = False
            first.unlink()
            second.unlink(missing_ok=True)
            folder.rmdir()
        except OSError as error:
            raise self._refused("write", "", error) from error
        return Capabilities(conditional_create=links, backend="local")

    def adapted(self, capabilities: Capabilities) -> LocalStore:
        """See `Store.adapted`; what a folder cannot do is found out at each create."""
        return self

    def unfinished(self) -> Iterator[ObjectInfo]:
        """See `Store.unfinished`."""
        for path in self.root.rglob(f".*{TEMPORARY_SUFFIX}"):
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                key = path.relative_to(self.root).as_posix()
                yield ObjectInfo(key, stat.st_size, stat.st_mtime)

    def _path(self, key: str) -> Path:
        return self.root / check_key(key)

    def _refused(self, verb: str, key: str, error: OSError) -> StorageError:
        where = f"{self.uri}/{key}" if key else self.uri
        if isinstance(error, FileNotFoundError | NotADirectoryError) and verb == "read":
            return MissingObjectError(f"{where} does not exist")
        cause = error.strerror or str(error)
        return StorageError(
            f"cannot {verb} {where}: {cause}; check that the folder exists or can be made, its "
            "rights, and the free space"
        )


def _link(temporary: Path, target: Path) -> bool:
    """Give a finished file its name unless that is taken; True when it got it."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        # NFS may lose the reply to a link that was made; the link count tells.
        return temporary.stat().st_nlink == 2
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Without hard links there is no exclusive rename; `probe` has reported it as such.
        if target.exists():
            return False
        temporary.replace(target)
    return True


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
        yield ObjectInfo(f"{prefix}{entry.name}", stat.st_size, stat.st_mtime)


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(TEMPORARY_SUFFIX)
