"""Objects that are overwritten in place while they are read: no chunk of mixed content (I4)."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sapiens_batch.records import Chunk
from sapiens_batch.sources import make_source
from sapiens_batch.sources.chunks import iter_chunks
from sapiens_batch.spec.job import SourceSpec
from sapiens_batch.storage.input_errors import ChangedInputError
from tests.sources.corpora import tar_bytes

IMAGES = 40
IMAGE_BYTES = 1 << 18
"""Ten megabytes in all: more than readers keep in their buffers."""

Write = Callable[[Path, int], SourceSpec]


def image(number: int, byte: int) -> bytes:
    """Equal size for every byte, and hard to compress away: each is another one."""
    return bytes([byte]) + number.to_bytes(2, "big") * (IMAGE_BYTES // 2)


def write_tar(folder: Path, byte: int) -> SourceSpec:
    members = [(f"{number:02d}.jpg", image(number, byte)) for number in range(IMAGES)]
    overwrite(folder / "a.tar", tar_bytes(members))
    return SourceSpec(format="webdataset", uri=str(folder / "a.tar"))


def write_gzip(folder: Path, byte: int) -> SourceSpec:
    write_tar(folder, byte)
    data = gzip.compress((folder / "a.tar").read_bytes(), compresslevel=0, mtime=0)
    overwrite(folder / "b.tar.gz", data)
    return SourceSpec(format="webdataset", uri=str(folder / "b.tar.gz"))


def write_parquet(folder: Path, byte: int) -> SourceSpec:
    buffer = pa.BufferOutputStream()
    table = pa.table({"image": [image(number, byte) for number in range(IMAGES)]})
    pq.write_table(table, buffer, row_group_size=8, compression="none", use_dictionary=False)
    overwrite(folder / "a.parquet", buffer.getvalue().to_pybytes())
    return SourceSpec(format="parquet", uri=str(folder / "a.parquet"))


def write_images(folder: Path, byte: int) -> SourceSpec:
    for number in range(IMAGES):
        overwrite(folder / f"{number:02d}.jpg", image(number, byte))
    return SourceSpec(format="images", uri=str(folder))


def write_coco(folder: Path, byte: int) -> SourceSpec:
    write_images(folder, byte)
    images = [{"id": number, "file_name": f"{number:02d}.jpg"} for number in range(IMAGES)]
    if not (folder / "coco.json").exists():
        (folder / "coco.json").write_text(json.dumps({"images": images}))
    return SourceSpec(format="coco", uri=str(folder / "coco.json"))


def overwrite(path: Path, data: bytes) -> None:
    """Write into the same file, until its time differs: clocks tick every few milliseconds."""
    before = path.stat().st_mtime if path.exists() else None
    while not path.exists() or path.stat().st_mtime == before:
        time.sleep(0.005)
        with path.open("r+b" if path.exists() else "wb") as file:
            file.write(data)


@pytest.mark.parametrize("write", [write_tar, write_gzip, write_parquet, write_images, write_coco])
def test_an_overwritten_shard_fails_before_a_chunk_of_mixed_content(
    tmp_path: Path, write: Write
) -> None:
    source = make_source(write(tmp_path, 1))
    (shard,) = source.plan()
    seen: list[Chunk] = []

    def read() -> None:
        for chunk in iter_chunks(source, shard, 4):
            seen.append(chunk)
            if chunk.index == 0:
                write(tmp_path, 2)

    with pytest.raises(ChangedInputError, match="has changed since it was planned"):
        read()
    assert seen
    assert not any(chunk.last for chunk in seen)
    first_bytes = {
        sample.encoded[0] for chunk in seen for sample in chunk.samples if sample.encoded
    }
    assert first_bytes == {1}


@pytest.mark.parametrize("write", [write_tar, write_parquet, write_images, write_coco])
def test_what_was_overwritten_before_is_not_read_under_the_planned_version(
    tmp_path: Path, write: Write
) -> None:
    source = make_source(write(tmp_path, 1))
    (shard,) = source.plan()
    write(tmp_path, 2)
    with pytest.raises(ChangedInputError):
        list(source.read(shard))


def test_a_replaced_file_is_read_as_the_one_that_was_opened(tmp_path: Path) -> None:
    source = make_source(write_tar(tmp_path, 1))
    (shard,) = source.plan()
    first_bytes = []
    for chunk in iter_chunks(source, shard, 4):
        first_bytes += [sample.encoded[0] for sample in chunk.samples if sample.encoded]
        if chunk.index == 0:
            (tmp_path / "new").mkdir()
            write_tar(tmp_path / "new", 2)
            (tmp_path / "new" / "a.tar").rename(tmp_path / "a.tar")
    assert first_bytes == [1] * IMAGES
