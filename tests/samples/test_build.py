"""The bundled shard is what its script writes from the bundled photos."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from sapiens_batch.errors import SampleError
from sapiens_batch.images.decode import decode
from sapiens_batch.samples.build import SHARD, build, members


def test_building_again_gives_the_committed_bytes(tmp_path: Path) -> None:
    build(tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == SHARD.read_bytes()


def test_the_shard_holds_four_photos_and_a_truncated_one() -> None:
    with tarfile.open(SHARD) as shard:
        assert shard.getnames() == [
            "astronaut.jpg",
            "astronaut.json",
            "cat.jpg",
            "cat.json",
            "photographer.jpg",
            "photographer.json",
            "portraits.jpg",
            "portraits.json",
            "truncated.jpg",
            "truncated.json",
        ]


def test_every_photo_decodes_and_the_truncated_one_says_why_not() -> None:
    files = members()
    sizes = {
        name: decode(files[f"{name}.jpg"]).pixels.shape[:2]
        for name in ("astronaut", "cat", "photographer", "portraits")
    }
    assert sizes == {
        "astronaut": (512, 512),
        "cat": (300, 451),
        "photographer": (512, 512),
        "portraits": (425, 640),
    }
    with pytest.raises(SampleError) as caught:
        decode(files["truncated.jpg"])
    assert caught.value.reason == "decode.truncated"
