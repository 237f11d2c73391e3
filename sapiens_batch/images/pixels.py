"""Decoded pixels of any colour mode to uint8 RGB.

Opening files, sizes and orientation are left to `decode`. A mode whose values have no stated range
is refused, because guessing the range would make wrong labels that nobody notices.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from PIL import Image, ImageFile, TiffImagePlugin

from sapiens_batch.errors import SampleError
from sapiens_batch.records import Array

_BITS_PER_SAMPLE_TAG = 258
_WITH_ALPHA = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})
_CONVERTIBLE = frozenset({"1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr", "HSV"})


def to_rgb(image: ImageFile.ImageFile) -> Array:
    """Bring a loaded image to RGB; alpha is laid over white.

    A colour key of an image without palette is ignored: its pixels have a colour of their own.

    Args:
        image: A loaded Pillow image of any mode.

    Returns:
        (H, W, 3) uint8, the orientation untouched.

    Raises:
        SampleError: `decode.unsupported` for floating point, 32-bit and CIELab images.
    """
    if image.mode == "I" or image.mode.startswith("I;16"):
        return _grey16_to_rgb(image)
    if image.mode in _WITH_ALPHA or (image.mode == "P" and "transparency" in image.info):
        rgba = image.convert("RGBA")
        over_white = Image.new("RGB", image.size, "white")
        over_white.paste(rgba, mask=rgba.getchannel("A"))
        return np.array(over_white)
    if image.mode not in _CONVERTIBLE:
        raise SampleError(
            "decode.unsupported",
            f"{image.format} with pixels of mode {image.mode} has no defined way to RGB; convert "
            "the image to 8-bit RGB",
        )
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))


def _grey16_to_rgb(image: ImageFile.ImageFile) -> Array:
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


def _grey_bits(image: ImageFile.ImageFile) -> int:
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return 16
    bits = cast("tuple[int, ...]", image.tag_v2.get(_BITS_PER_SAMPLE_TAG, (16,)))
    return min(int(bits[0]), 16)
