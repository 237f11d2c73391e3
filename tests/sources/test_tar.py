"""Every way in which a tar can be damaged is reported, with where it happened."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapiens_batch.records import Problem
from sapiens_batch.sources.tar import TarMember, iter_members
from sapiens_batch.storage.streams import InputStream
from tests.sources.corpora import good_keys, read_tar, reasons, tar_bytes

MEMBERS = [("0.jpg", b"a" * 700), ("0.json", b"{}"), ("1.jpg", b"b" * 512), ("2.jpg", b"c" * 511)]
# Byte offsets of the headers: 0, 1536, 2560, 3584; the data ends at 4607, its padding at 4608.
WHOLE = tar_bytes(MEMBERS)


def zstd(content: bytes) -> bytes:
    return bytes(pa.compress(content, "zstd", asbytes=True))


class BrokenStore(io.BytesIO):
    """Gives some bytes, then fails as a connection does."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() >= 2048:
            raise ConnectionResetError("connection reset by peer")
        return super().read(min(size or 0, 2048 - self.tell()))


def collect(content: bytes) -> tuple[list[TarMember], list[Problem]]:
    items = list(iter_members(InputStream(io.BytesIO(content), "x.tar"), lambda _: True))
    members = [item for item in items if isinstance(item, TarMember)]
    return members, [item for item in items if isinstance(item, Problem)]


def test_members_come_with_content_and_offset() -> None:
    members, problems = collect(WHOLE)
    assert [(member.name, member.content) for member in members] == MEMBERS
    assert [member.offset for member in members] == [0, 1536, 2560, 3584]
    assert problems == []


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, zstd])
def test_compression_is_told_by_the_first_bytes(compress: Callable[[bytes], bytes]) -> None:
    members, problems = collect(compress(WHOLE))
    assert [(member.name, member.content) for member in members] == MEMBERS
    assert problems == []


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, zstd])
def test_a_cut_in_a_compressed_tar_is_reported(compress: Callable[[bytes], bytes]) -> None:
    content = compress(WHOLE)
    _, problems = collect(content[: len(content) // 2])
    assert len(problems) == 1
    assert "decompression stopped" in problems[0].message


@pytest.mark.parametrize(
    ("stop", "whole", "reason", "where"),
    [
        (0, 0, "source.not_a_tar", "nothing"),
        (100, 0, "source.not_a_tar", "a header that is cut"),
        (600, 0, "source.truncated", "byte 600, inside '0.jpg' from byte 0"),
        (1536, 1, "source.no_end", "byte 1536"),
        (1600, 1, "source.truncated", "byte 1600, inside the header at byte 1536"),
        (2560, 2, "source.no_end", "byte 2560"),
        (3583, 2, "source.truncated", "byte 3583, inside '1.jpg' from byte 2560"),
        (4608, 4, "source.no_end", "byte 4608"),
    ],
)
def test_a_cut_is_reported_wherever_it_is(stop: int, whole: int, reason: str, where: str) -> None:
    members, problems = collect(WHOLE[:stop])
    assert len([member for member in members if not member.cut]) == whole
    assert [problem.reason for problem in problems] == [reason]
    assert where in problems[0].message


@settings(max_examples=60, deadline=None)
@given(stop=st.integers(0, len(WHOLE)))
def test_a_cut_never_changes_a_member_and_is_silent_only_after_the_data(stop: int) -> None:
    members, problems = collect(WHOLE[:stop])
    whole = [(member.name, member.content) for member in members if not member.cut]
    assert whole == MEMBERS[: len(whole)]
    assert bool(problems) == (stop < 4608 + 512)


@settings(max_examples=60, deadline=None)
@given(position=st.integers(0, 4607), value=st.integers(0, 255))
def test_a_changed_byte_never_raises(position: int, value: int) -> None:
    content = bytearray(WHOLE)
    content[position] = value
    members, _ = collect(bytes(content))
    assert len(members) <= 4


def test_a_bad_header_checksum_is_reported() -> None:
    content = bytearray(WHOLE)
    content[1536 + 150] ^= 1
    members, problems = collect(bytes(content))
    assert [member.name for member in members] == ["0.jpg"]
    assert [problem.reason for problem in problems] == ["source.bad_header"]
    assert "byte 1536" in problems[0].message


def test_archives_that_follow_one_another_are_all_read() -> None:
    members, problems = collect(WHOLE + tar_bytes([("9.jpg", b"z")]))
    assert [member.name for member in members] == ["0.jpg", "0.json", "1.jpg", "2.jpg", "9.jpg"]
    assert members[-1].offset == len(WHOLE)
    assert problems == []


def test_anything_else_after_the_archive_is_reported() -> None:
    members, problems = collect(WHOLE + b"<html>" * 200)
    assert len(members) == 4
    assert [problem.reason for problem in problems] == ["source.trailing_data"]


@pytest.mark.parametrize("content", [b"<html>404</html>", b"hello " * 400, b"\x1f\x8bnot gzip"])
def test_what_is_no_tar_is_one_problem(content: bytes) -> None:
    members, problems = collect(content)
    assert members == []
    assert [problem.reason for problem in problems] == ["source.not_a_tar"]


@pytest.mark.parametrize("tar_format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_and_unicode_names(tar_format: int) -> None:
    names = ["写真/😀.jpg", "long" * 50 + ".jpg"]
    members, problems = collect(tar_bytes([(name, b"x") for name in names], tar_format))
    assert [member.name for member in members] == names
    assert problems == []


def test_a_huge_declared_size_is_not_allocated(tmp_path: Path) -> None:
    info = tarfile.TarInfo("1.jpg")
    info.size = 8 << 30
    content = tar_bytes([("0.jpg", b"a")])[:1024] + info.tobuf(tarfile.GNU_FORMAT) + b"b" * 5000
    tracemalloc.start()
    samples, problems = read_tar(tmp_path, content)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 16 << 20
    assert good_keys(samples) == ["0"]
    assert reasons(samples) == {"1": "source.truncated"}
    assert [problem.reason for problem in problems] == ["source.truncated"]


def test_a_huge_long_name_header_is_damage() -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 4 << 30
    members, problems = collect(info.tobuf(tarfile.GNU_FORMAT) + WHOLE)
    assert members == []
    assert len(problems) == 1


def test_a_failing_store_is_raised_and_never_taken_for_a_cut() -> None:
    for content in (WHOLE, gzip.compress(WHOLE, 0)):
        stream = InputStream(BrokenStore(content), "x.tar")
        with pytest.raises(ConnectionResetError):
            list(iter_members(stream, lambda _: True))


def test_an_object_that_ends_before_its_size_is_a_failing_store() -> None:
    short = io.BytesIO(WHOLE[:2000])
    short.size = len(WHOLE)  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="ended after 2000 of 10240 bytes"):
        list(iter_members(InputStream(short, "x.tar"), lambda _: True))
