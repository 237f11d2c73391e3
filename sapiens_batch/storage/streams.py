"""A readable stream over one input object that remembers whether the store failed.

Readers of archives and columns turn damaged bytes into rows with a reason, but must not do so for
bytes that merely failed to arrive. Libraries between them and the store lose that difference; this
stream keeps it in `failure`. What the bytes mean is left to the sources.
"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


def as_os_error(error: Exception, uri: str) -> OSError:
    """The failure of a store as an `OSError` that names the object."""
    return OSError(f"reading {uri} failed: {type(error).__name__}: {error}")


class InputStream(io.RawIOBase):
    """Unbuffered reads of one object; wrap it in `io.BufferedReader` for small reads.

    Args:
        stream: The store's own file object.
        uri: Address for messages.

    Attributes:
        failure: The error of the store that a read met, else None.
    """

    def __init__(self, stream: BinaryIO, uri: str) -> None:
        super().__init__()
        self._stream = stream
        self._uri = uri
        self._position = 0
        size = getattr(stream, "size", None)
        self.size_bytes: int | None = int(size) if isinstance(size, int) else None
        self.failure: OSError | None = None

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Whether the store can read from the middle."""
        return bool(self._stream.seekable())

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes as the store gives them, without a copy; all where it is negative.

        Raises:
            OSError: The store failed, or ended the object before its size.
        """
        return self.readall() if size < 0 else self._fetch(size)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill `buffer` as far as the store gives bytes at once.

        Raises:
            OSError: The store failed, or ended the object before its size.
        """
        view = memoryview(buffer).cast("B")
        data = self._fetch(len(view))
        view[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to another position."""
        self._position = self._stream.seek(offset, whence)
        return self._position

    def tell(self) -> int:
        """Position of the next read."""
        return self._position

    def close(self) -> None:
        """Close the store's file object too."""
        if not self.closed:
            self._stream.close()
        super().close()

    def raise_failure(self) -> None:
        """Raise the store's error, if a library in between has swallowed or renamed it.

        Raises:
            OSError: The store failed during an earlier read.
        """
        if self.failure is not None:
            raise self.failure

    def _fetch(self, size: int) -> bytes:
        try:
            data = self._stream.read(size)
        except OSError as error:
            self.failure = error
            raise
        except Exception as error:  # drivers raise their own types, for example aiohttp's
            self.failure = as_os_error(error, self._uri)
            raise self.failure from error
        if not data and size and self.size_bytes and self._position < self.size_bytes:
            message = f"{self._uri} ended after {self._position} of {self.size_bytes} bytes"
            self.failure = OSError(message)
            raise self.failure
        self._position += len(data)
        return data
