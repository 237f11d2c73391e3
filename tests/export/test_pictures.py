"""Photos beside labels."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sapiens_batch.errors import InputError, SpecError
from sapiens_batch.export.pictures import match_pictures, upright
from sapiens_batch.records import Array, Sample
from tests.export.conftest import run

# red above blue, so that turning shows
PIXELS = np.zeros((8, 16, 3), np.uint8)
PIXELS[:4, :, 0] = 255
PIXELS[4:, :, 2] = 255


def encoded(kind: str, orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    buffer = io.BytesIO()
    Image.fromarray(PIXELS).save(buffer, format=kind, exif=exif, quality=100)
    return buffer.getvalue()


def pixels_without_exif(data: bytes) -> Array:
    """What a loader sees that ignores the orientation tag."""
    with Image.open(io.BytesIO(data)) as image:
        return np.array(image.convert("RGB"))


def test_a_photo_that_stands_upright_keeps_its_bytes() -> None:
    data = encoded("JPEG", 1)
    picture = upright(data, 1)
    assert picture.encoded is data
    assert (picture.suffix, picture.mime_type) == ("jpg", "image/jpeg")


def test_a_turned_photo_is_upright_for_loaders_that_ignore_the_tag() -> None:
    picture = upright(encoded("JPEG", 6), 6)
    found = pixels_without_exif(picture.encoded)
    assert found.shape == (16, 8, 3)
    # orientation 6 is turned clockwise: what was on top is on the right
    assert found[8, 7, 0] > 200 > 60 > found[8, 0, 0]


def test_a_turned_lossless_photo_stays_lossless() -> None:
    picture = upright(encoded("PNG", 3), 3)
    assert picture.suffix == "png"
    np.testing.assert_array_equal(pixels_without_exif(picture.encoded), PIXELS[::-1, ::-1])


def test_a_photo_that_is_gone_is_an_error_that_names_the_sample() -> None:
    found: Iterator[tuple[str, Sample]] = iter([])
    row = {"key": "k1", "index": 3, "orientation": 1}
    with pytest.raises(InputError, match="'k1'"):
        list(match_pictures([row], found))


def test_pictures_in_a_format_without_a_place_for_them_are_refused(
    job: Path, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match="no place for pictures"):
        run(job, tmp_path / "out", "clip-retrieval", pictures=True)
