"""A readable stream over one version of an input object, which remembers whether the store failed.

Readers of archives and columns turn damaged bytes into rows with a reason, but must not do so for
bytes that merely failed to arrive, or that belong to another version of the object. Libraries
between them and the store lose that difference; this stream keeps it in `failure`. What the bytes
mean is left to the sources. Once the version was asked for, no bytes of another one are handed out
where the store tells versions cheaply (local files, S3), and elsewhere leaving the `with` block
fails (I4).
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

from sapiens_batch.errors import InputError
from sapiens_batch.storage.input_errors import as_os_error, changed

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class InputStream(io.RawIOBase):
    """Unbuffered reads of one object; wrap it in `io.BufferedReader` for small reads.

    Args:
        stream: The store's own file object.
        uri: Address for messages.
        look: Asks which version the object is now.
        is_cheap: Whether that takes no request, so that it is asked after each read.

    Attributes:
        failure: The error that a read met, else None.
    """

    def __init__(
        self,
        stream: BinaryIO,
        uri: str,
        look: Callable[[], str] = lambda: "",
        *,
        is_cheap: bool = True,
    ) -> None:
        super().__init__()
        self._look = look
        self._is_cheap = is_cheap
        self._version: str | None = None
        self._stream = stream
        self._uri = uri
        self._position = 0
        size = getattr(stream, "size", None)
        self.size_bytes: int | None = int(size) if isinstance(size, int) else None
        self.failure: OSError | InputError | None = None

    @property
    def version(self) -> str:
        """The version of the object when this was asked first; from then on no other is read."""
        if self._version is None:
            self._version = self._look()
        return self._version

    def check_version(self) -> None:
        """Look whether the object is still the version that was asked for, if it was.

        Raises:
            ChangedInputError: It is another one.
            OSError: The store failed.
        """
        if self._version is not None and (found := self._look()) != self._version:
            self.failure = changed(self._uri, self._version, found)
            raise self.failure

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with contextlib.closing(self):
            if kind is None and not self._is_cheap:
                self.check_version()

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Whether the store can read from the middle."""
        return bool(self._stream.seekable())

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes as the store gives them, without a copy; all where it is negative.

        Raises:
            ChangedInputError: The object is another version than was asked for.
            OSError: The store failed, or ended the object before its size.
        """
        return self.readall() if size < 0 else self._fetch(size)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill `buffer` as far as the store gives bytes at once.

        Raises:
            ChangedInputError: The object is another version than was asked for.
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
            ChangedInputError: An earlier read met another version of the object.
            OSError: The store failed during an earlier read.
        """
        if self.failure is not None:
            raise self.failure

    def _fetch(self, size: int) -> bytes:
        try:
            data = self._stream.read(size)
        except OSError as error:
            is_other = type(error).__name__ == "FileExpired"  # of s3fs: another etag than opened
            self.failure = changed(self._uri, self.version, "another") if is_other else error
            raise self.failure from error
        except Exception as error:  # drivers raise their own types, for example aiohttp's
            self.failure = as_os_error(error, self._uri)
            raise self.failure from error
        if not data and size and self.size_bytes and self._position < self.size_bytes:
            message = f"{self._uri} ended after {self._position} of {self.size_bytes} bytes"
            self.failure = OSError(message)
            raise self.failure
        if self._is_cheap:
            self.check_version()
        self._position += len(data)
        return data
