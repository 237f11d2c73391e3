"""Any cut and any flipped bit of a tar gives whole right samples, bad ones, or a damaged shard."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapiens_batch.records import Sample
from tests.sources.corpora import good_keys, read_shard, tar_bytes

LONG = "x" * 130
FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


@st.composite
def archives(draw: st.DrawFn) -> tuple[bytes, list[str]]:
    """An archive of two to five samples, each an image and a text, and their keys in order."""
    tar_format = draw(st.sampled_from(FORMATS))
    folder = "" if tar_format == tarfile.USTAR_FORMAT else draw(st.sampled_from(["", "é/", LONG]))
    keys = [f"{folder}{number}" for number in range(draw(st.integers(2, 5)))]
    members = []
    for number, key in enumerate(keys):
        size = draw(st.sampled_from([1, 511, 512, 513, 1500]))
        members += [(f"{key}.jpg", bytes([65 + number]) * size), (f"{key}.txt", b"text")]
    return tar_bytes(members, tar_format), keys


def images_in(archive: bytes, layout: bytes) -> dict[str, bytes]:
    """By key, the bytes of `archive` that lie where `layout` has the images."""
    with tarfile.open(fileobj=io.BytesIO(layout)) as whole:
        return {
            info.name.removesuffix(".jpg"): archive[info.offset_data :][: info.size]
            for info in whole.getmembers()
            if info.name.endswith(".jpg")
        }


def name_ranges(layout: bytes) -> list[range]:
    """Where long names stand, which a tar does not protect with a checksum."""
    with tarfile.open(fileobj=io.BytesIO(layout)) as whole:
        return [
            range(info.offset + 512, info.offset_data - 512)
            for info in whole.getmembers()
            if info.offset_data - info.offset > 512
        ]


def good(samples: Sequence[Sample]) -> dict[str, bytes | None]:
    return {sample.key: sample.encoded for sample in samples if sample.problem is None}


@settings(max_examples=60, deadline=None)
@given(archive=archives(), data=st.data())
def test_a_cut_loses_only_what_it_cuts_and_is_reported(
    tmp_path_factory: pytest.TempPathFactory, archive: tuple[bytes, list[str]], data: st.DataObject
) -> None:
    content, keys = archive
    stop = data.draw(st.integers(0, len(content) - 1), label="stop")
    path = tmp_path_factory.mktemp("cut") / "a.tar"
    path.write_bytes(content[:stop])
    samples, problems = read_shard(path)
    right = images_in(content, content)
    assert good_keys(samples) == keys[: len(good_keys(samples))]
    assert good(samples) == {key: right[key] for key in good(samples)}
    assert len(samples) - len(good(samples)) <= 1
    assert problems or good(samples) == right


@settings(max_examples=120, deadline=None)
@given(archive=archives(), data=st.data())
def test_a_flipped_bit_never_gives_a_sample_the_bytes_of_another(
    tmp_path_factory: pytest.TempPathFactory, archive: tuple[bytes, list[str]], data: st.DataObject
) -> None:
    content, keys = archive
    position = data.draw(st.integers(0, len(content) - 1), label="position")
    flipped = bytearray(content)
    flipped[position] ^= 1 << data.draw(st.integers(0, 7), label="bit")
    path = tmp_path_factory.mktemp("flip") / "a.tar"
    path.write_bytes(bytes(flipped))
    samples, problems = read_shard(path)
    there = images_in(bytes(flipped), content)
    if any(position in names for names in name_ranges(content)):
        assert set(good(samples).values()) <= set(there.values())
        return
    assert good(samples) == {key: there[key] for key in good(samples)}
    assert problems or good_keys(samples) == keys


@settings(max_examples=50, deadline=None)
@given(archive=archives(), data=st.data())
def test_a_flipped_bit_of_a_compressed_tar_is_reported_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, archive: tuple[bytes, list[str]], data: st.DataObject
) -> None:
    content, _ = archive
    flipped = bytearray(gzip.compress(content, mtime=0))
    position = data.draw(st.integers(0, len(flipped) - 1), label="position")
    flipped[position] ^= 1 << data.draw(st.integers(0, 7), label="bit")
    path = tmp_path_factory.mktemp("gzip") / "a.tar.gz"
    path.write_bytes(bytes(flipped))
    samples, problems = read_shard(path)
    assert problems or good(samples) == images_in(content, content)


def test_two_cut_shards_never_share_a_sample(tmp_path: Path) -> None:
    first = tar_bytes([("0.jpg", b"A" * 600), ("1.jpg", b"B" * 600), ("1.json", b"{}" * 400)])
    (tmp_path / "a.tar").write_bytes(first[: len(first) - 1024 - 1024])
    (tmp_path / "b.tar").write_bytes(tar_bytes([("1.json", b"{}"), ("2.jpg", b"C")]))
    assert good(read_shard(tmp_path / "a.tar")[0]).keys() <= {"0", "1"}
    samples, _ = read_shard(tmp_path / "b.tar")
    assert good(samples) == {"2": b"C"}
    assert [sample.key for sample in samples] == ["1", "2"]
