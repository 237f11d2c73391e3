"""The photos of an export: the encoded bytes of the source, upright.

Labels are in pixels after EXIF orientation, while many training loaders ignore that tag. So a photo
that carries one is turned and encoded again; every other photo keeps its bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from PIL import Image

from sapiens_batch.errors import InputError, SampleError
from sapiens_batch.images.decode import decode
from sapiens_batch.images.sniff import sniff_format
from sapiens_batch.records import Array, Sample

_SUFFIXES = {"JPEG": "jpg", "TIFF": "tif"}
_LOSSLESS = frozenset({"PNG", "BMP", "TIFF", "PPM", "GIF"})
_JPEG: dict[str, Any] = {"format": "JPEG", "quality": 95, "subsampling": "4:4:4"}


@dataclass(frozen=True, slots=True)
class Picture:
    """One upright photo: an image file's bytes, and the suffix of its name without a dot."""

    encoded: bytes
    suffix: str

    @property
    def mime_type(self) -> str:
        """Its media type."""
        return f"image/{ {'jpg': 'jpeg', 'tif': 'tiff'}.get(self.suffix, self.suffix) }"

    def pixels(self) -> Array:
        """(height, width, 3) uint8 sRGB."""
        return decode(self.encoded).pixels


def upright(encoded: bytes, orientation: int | None) -> Picture:
    """The photo of a labeled sample, whose EXIF orientation the table has.

    Raises:
        SampleError: The bytes are no image; they were when they were labeled.
    """
    name = sniff_format(encoded)
    if orientation in (None, 1):
        return Picture(encoded, _SUFFIXES.get(name, name.lower()))
    image = Image.fromarray(decode(encoded).pixels)
    buffer = io.BytesIO()
    if name in _LOSSLESS:
        image.save(buffer, format="PNG")
        return Picture(buffer.getvalue(), "png")
    image.save(buffer, **_JPEG)
    return Picture(buffer.getvalue(), "jpg")


def match_pictures(
    rows: Iterable[Mapping[str, Any]], found: Iterator[tuple[str, Sample]]
) -> Iterator[Picture]:
    """The photo of each row, in order.

    Args:
        rows: Rows of `images` of one shard, by index.
        found: The shard's wanted samples as `iter_encoded` streams them, by index.

    Raises:
        InputError: The source no longer has a photo that was labeled.
    """
    for row in rows:
        sample = next((one for _, one in found if one.index == row["index"]), None)
        if sample is None or sample.encoded is None:
            raise InputError(
                f"the source has no picture of sample {row['key']!r} any more; restore it, or "
                "export without pictures"
            )
        try:
            yield upright(sample.encoded, row["orientation"])
        except SampleError as error:
            raise InputError(f"sample {row['key']!r}: {error}; the source has changed") from error
