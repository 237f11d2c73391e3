"""Telling a failing store from bytes that are wrong."""

from __future__ import annotations

import io

import pytest

from sapiens_batch.storage.streams import InputStream


class DriverError(Exception):
    """Stands for the errors of drivers that are no OSError."""


class FailingFile(io.BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        raise DriverError("throttled")


def test_reads_seeks_and_fills_buffers_like_a_file() -> None:
    stream = InputStream(io.BytesIO(b"0123456789"), "s3://b/x")
    assert (stream.read(3), stream.tell(), stream.seek(1), stream.read()) == (
        b"012",
        3,
        1,
        b"123456789",
    )
    stream.seek(8)
    assert io.BufferedReader(stream).read() == b"89"
    assert stream.failure is None


def test_errors_of_a_driver_become_os_errors_that_name_the_object() -> None:
    stream = InputStream(FailingFile(), "s3://b/x")
    with pytest.raises(OSError, match=r"reading s3://b/x failed: DriverError: throttled"):
        stream.read(1)
    with pytest.raises(OSError, match="throttled"):
        stream.raise_failure()


def test_closing_closes_the_stores_file() -> None:
    inner = io.BytesIO(b"x")
    InputStream(inner, "x").close()
    assert inner.closed
