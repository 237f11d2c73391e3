"""Stream the members of a tar archive and report every kind of damage.

The standard library parses headers (ustar, PAX, GNU); it stops silently at a bad header and at a
cut between members, so this module watches how the archive ends. Archives that follow one another
in one object are all read. Nothing is extracted, no declared size is trusted, and memory is bounded
by the members that the caller keeps. What members mean is left to `sources.webdataset`.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import IO, Literal, Self, cast

import pyarrow as pa

from sapiens_batch.records import Problem
from sapiens_batch.storage.streams import InputStream

MAX_MEMBER_BYTES = 512 << 20
"""A larger member is passed over; no image file that can be labeled comes near."""

MAX_HEADER_BYTES = 16 << 20
"""A PAX or long-name header that claims more is damage."""

_PIECE_BYTES = 1 << 20
_BLOCK_BYTES = tarfile.BLOCKSIZE


@dataclass(frozen=True, slots=True)
class TarMember:
    """One entry of an archive.

    Attributes:
        name: As stored; bytes that are not UTF-8 are written as backslash escapes.
        offset: Byte offset of its header in the uncompressed stream.
        kind: `file`; `folder`; or `other` for links, devices, pipes and sparse files.
        size_bytes: Declared size.
        content: The bytes, where they were asked for and came whole.
        cut: Whether the archive ends inside this member.
    """

    name: str
    offset: int
    kind: Literal["file", "folder", "other"]
    size_bytes: int
    content: bytes | None
    cut: bool = False


def iter_members(stream: InputStream, keep: Callable[[str], bool]) -> Iterator[TarMember | Problem]:
    """Stream the members; a `Problem` is damage, and is the last item.

    Args:
        stream: The object, plain or compressed (gzip, bzip2, xz, zstd), told by its first bytes.
        keep: Whether the content of the member of this name is wanted.

    Raises:
        OSError: The store failed; bytes that did not arrive are never taken for damage.
    """
    forward = ForwardStream(stream)
    problem: Problem | None = None
    while problem is None:
        problem = yield from _iter_archive(forward, keep)
        if problem is None and not forward.skip_zeros():
            problem = _late_damage(forward)
            break
    stream.raise_failure()
    if problem is not None:
        yield problem


class ForwardStream(io.RawIOBase):
    """Uncompressed bytes of an object, forward only, that knows where and why they end.

    Attributes:
        last_read: What the last header read gave.
        damage: What the decompressor said when it could not go on; empty while all is well.
        header_offset: Where the header that was read last begins.
        ending: Why the archive has no further header, once it has none.
    """

    def __init__(self, stream: InputStream) -> None:
        super().__init__()
        self._source = stream
        self._pull = _decompressed(stream)
        self._position = 0
        self._pushed_back = b""
        self.damage = ""
        self.header_offset = 0
        self.ending: _Ending | None = None
        self.last_read = b""

    def tell(self) -> int:
        """Bytes handed out so far."""
        return self._position

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Skip forward to an absolute position, or to the end of the data."""
        if whence != 0 or offset < self._position:
            raise io.UnsupportedOperation(f"cannot go back from {self._position} to {offset}")
        self.take(offset - self._position, keep=False)
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        """Exactly `size` bytes of header, fewer at the end of the data."""
        if not 0 <= size <= MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header claims {size} bytes")
        self.last_read = self.take(size, keep=True)[0]
        return self.last_read

    def take(self, size: int, *, keep: bool) -> tuple[bytes, bool]:
        """Read `size` bytes in small pieces; returns what to keep and whether all were there."""
        pieces: list[bytes] = []
        remaining = size
        while remaining > 0 and (piece := self._piece(min(remaining, _PIECE_BYTES))):
            remaining -= len(piece)
            if keep:
                pieces.append(piece)
        return b"".join(pieces), remaining == 0

    def skip_zeros(self) -> bool:
        """Skip the zero blocks after an archive; whether anything follows them."""
        while block := self.take(_BLOCK_BYTES, keep=True)[0]:
            if block.strip(b"\0"):
                self._pushed_back = block
                self._position -= len(block)
                return True
        return False

    def _piece(self, size: int) -> bytes:
        if self._pushed_back:
            piece, self._pushed_back = self._pushed_back[:size], self._pushed_back[size:]
        else:
            piece = self._pulled(size)
        self._position += len(piece)
        return piece

    def _pulled(self, size: int) -> bytes:
        try:
            return b"" if self.damage else self._pull(size)
        except (EOFError, OSError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
            self._source.raise_failure()
            self.damage = f"; decompression stopped: {error}"
            return b""


class _Ending(StrEnum):
    """What stands where a header should be."""

    ZEROS = "zeros"
    NOTHING = "nothing"
    CUT = "a header that is cut"
    DAMAGED = "something that is no tar header"


def _ending(size_bytes: int, last_read: bytes) -> _Ending:
    """Judge a failed header from how many bytes it took and from the last of them."""
    if size_bytes == 0:
        return _Ending.NOTHING
    if len(last_read) % _BLOCK_BYTES or not last_read:
        return _Ending.CUT
    is_end = size_bytes == _BLOCK_BYTES and not last_read.strip(b"\0")
    return _Ending.ZEROS if is_end else _Ending.DAMAGED


class _Header(tarfile.TarInfo):
    """Records why the archive ended, which `TarFile.next` keeps to itself."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile, /) -> Self:
        stream = cast(ForwardStream, archive.fileobj)
        start = stream.header_offset = stream.tell()
        try:
            return super().fromtarfile(archive)
        except tarfile.HeaderError:
            stream.header_offset = start
            stream.ending = _ending(stream.tell() - start, stream.last_read)
            raise


def _iter_archive(
    stream: ForwardStream, keep: Callable[[str], bool]
) -> Generator[TarMember, None, Problem | None]:
    """Members of one archive; returns its damage, None if it ends as it should."""
    start = stream.tell()
    stream.ending = None
    try:
        archive = tarfile.TarFile(
            fileobj=cast("IO[bytes]", stream),
            tarinfo=_Header,
            encoding="utf-8",
            errors="backslashreplace",
        )
        while stream.ending is None and (info := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined] # else every header is kept
            member = _member(info, stream, keep)
            yield member
            if member.cut:
                return _cut(f"inside {member.name!r} from byte {member.offset}", stream)
    except tarfile.ReadError as error:
        if stream.ending is None:
            return _cut(f"after the header at byte {stream.header_offset}: {error}", stream)
    return _damage(stream, start)


def _member(info: tarfile.TarInfo, stream: ForwardStream, keep: Callable[[str], bool]) -> TarMember:
    if not info.isreg() or info.issparse():
        kind: Literal["folder", "other"] = "folder" if info.isdir() else "other"
        return TarMember(info.name, info.offset, kind, info.size, None)
    wanted = info.size <= MAX_MEMBER_BYTES and keep(info.name)
    content, whole = stream.take(info.size, keep=wanted)
    kept = content if wanted and whole else None
    return TarMember(info.name, info.offset, "file", info.size, kept, cut=not whole)


def _damage(stream: ForwardStream, start: int) -> Problem | None:
    """What the end of an archive that began at byte `start` says about it."""
    ending, offset = stream.ending, stream.header_offset
    if ending is _Ending.ZEROS:
        return None
    if offset == 0:
        return Problem(
            "source.not_a_tar", f"not a tar archive: begins with {ending}{stream.damage}"
        )
    if offset == start:
        return Problem("source.trailing_data", f"after the archive, at byte {offset}, is {ending}")
    if ending is _Ending.NOTHING:
        return Problem(
            "source.no_end",
            f"ends at byte {offset} without end-of-archive blocks: cut between members, "
            f"or its writer was not closed{stream.damage}",
        )
    if ending is _Ending.CUT:
        return _cut(f"inside the header at byte {offset}", stream)
    return Problem("source.bad_header", f"at byte {offset} is {ending}; the rest was not read")


def _late_damage(stream: ForwardStream) -> Problem | None:
    """What a decompressor finds only after the last member: a checksum that does not fit."""
    if not stream.damage:
        return None
    message = f"after the archive{stream.damage}; any of its members may be wrong"
    return Problem("source.corrupt", message)


def _cut(where: str, stream: ForwardStream) -> Problem:
    return Problem("source.truncated", f"cut at byte {stream.tell()}, {where}{stream.damage}")


def _decompressed(stream: InputStream) -> Callable[[int], bytes]:
    """A function that returns up to so many uncompressed bytes, b"" at the end."""
    buffered = io.BufferedReader(stream, _PIECE_BYTES)
    magic = buffered.peek(6)[:6]
    if magic.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=buffered).read1
    if magic.startswith(b"BZh"):
        return bz2.BZ2File(buffered).read1
    if magic.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMAFile(buffered).read1
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        return pa.CompressedInputStream(pa.PythonFile(buffered, "r"), "zstd").read
    return buffered.read1
