"""Decoded pixels of any colour mode to uint8 sRGB.

Opening files, sizes and orientation are left to `decode`. A mode whose values have no stated range
is refused, because guessing the range would make wrong labels that nobody notices.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from PIL import Image, TiffImagePlugin

from sapiens_batch.errors import SampleError
from sapiens_batch.images.colour import to_srgb
from sapiens_batch.images.decoded import WHITE, ColourProfile
from sapiens_batch.records import Array

_BITS_PER_SAMPLE_TAG = 258
_WITH_ALPHA = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})
_CONVERTIBLE = frozenset({"1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr", "HSV"})
_PROFILED = frozenset({"L", "RGB", "CMYK"})


def to_rgb(
    image: Image.Image, *, background: tuple[int, int, int] = WHITE
) -> tuple[Array, ColourProfile]:
    """Bring a loaded image to sRGB; alpha is laid over a background.

    A colour key of an image without palette is ignored: its pixels have a colour of their own.

    Args:
        image: A loaded Pillow image of any mode.
        background: RGB under transparent pixels.

    Returns:
        (H, W, 3) uint8, the orientation untouched, and what became of an embedded ICC profile.

    Raises:
        SampleError: `decode.unsupported` for floating point, 32-bit and CIELab images.
    """
    profile = image.info.get("icc_profile")
    if image.mode == "I" or image.mode.startswith("I;16"):
        return _grey16_to_rgb(image), "ignored" if profile else "none"
    if image.mode in _WITH_ALPHA or (image.mode == "P" and "transparency" in image.info):
        return _over(image.convert("RGBA"), profile, background)
    if image.mode not in _CONVERTIBLE:
        raise SampleError(
            "decode.unsupported",
            f"{image.format} with pixels of mode {image.mode} has no defined way to RGB; convert "
            "the image to 8-bit RGB",
        )
    profiled = image if image.mode in _PROFILED else image.convert("RGB")
    converted, found = to_srgb(profiled, profile)
    return np.array(converted if converted.mode == "RGB" else converted.convert("RGB")), found


def _over(
    rgba: Image.Image, profile: bytes | None, background: tuple[int, int, int]
) -> tuple[Array, ColourProfile]:
    colours, found = to_srgb(rgba.convert("RGB"), profile)
    below = Image.new("RGB", rgba.size, background)
    below.paste(colours, mask=rgba.getchannel("A"))
    return np.array(below), found


def _grey16_to_rgb(image: Image.Image) -> Array:
    values = np.array(image).astype(np.int64)
    largest = 2 ** _grey_bits(image) - 1
    if values.min() < 0 or values.max() > largest:
        raise SampleError(
            "decode.unsupported",
            f"{image.format} with 32-bit pixels from {values.min()} to {values.max()}; the range "
            "that means white is unknown; convert the image to 8 or 16 bits",
        )
    grey = ((values * 255 + largest // 2) // largest).astype(np.uint8)
    return np.repeat(grey[:, :, None], 3, axis=2)


def _grey_bits(image: Image.Image) -> int:
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return 16
    bits = cast("tuple[int, ...]", image.tag_v2.get(_BITS_PER_SAMPLE_TAG, (16,)))
    return min(int(bits[0]), 16)
