"""Embedded ICC profiles: pixels of any profiled colour space to sRGB.

Opening files and laying alpha over a background are left to `decode` and `pixels`. A profile never
costs an image: one that cannot be used is reported as ignored.
"""

from __future__ import annotations

import io
from functools import lru_cache

import numpy as np
from PIL import Image, ImageCms

from sapiens_batch.images.decoded import ColourProfile

# Colour space of the profile by the mode of the pixels it describes.
_SPACES = {"L": "GRAY", "RGB": "RGB", "CMYK": "CMYK"}
# A profile that moves no colour of a coarse grid further than this is sRGB under whatever name:
# converting would cost more than it changes.
_SRGB_LEVELS = 2
# Corpora hold few distinct profiles; a transform takes about 0.3 MB and 5 ms to build.
_KEPT_TRANSFORMS = 16


def to_srgb(image: Image.Image, profile: bytes | None) -> tuple[Image.Image, ColourProfile]:
    """Convert an opaque image to sRGB by its own profile.

    Args:
        image: Mode `L`, `RGB` or `CMYK`; others are returned as they are.
        profile: The embedded ICC profile, or None.

    Returns:
        The image, of mode `RGB` where it was converted and unchanged otherwise, and what became of
        the profile.
    """
    if not profile:
        return image, "none"
    transform = _transform(profile, image.mode)
    if transform is None:
        return image, "ignored"
    if image.mode == "RGB" and _is_identity(profile):
        return image, "srgb"
    converted = ImageCms.applyTransform(image, transform)
    return (image, "ignored") if converted is None else (converted, "converted")


@lru_cache(maxsize=_KEPT_TRANSFORMS)
def _transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if source.profile.xcolor_space.strip() != _SPACES.get(mode):
            return None
        return ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, "RGB")
    except (OSError, ValueError, TypeError, ImageCms.PyCMSError):
        return None


@lru_cache(maxsize=_KEPT_TRANSFORMS)
def _is_identity(profile: bytes) -> bool:
    levels = np.linspace(0, 255, 9).astype(np.uint8)
    grid = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(27, 27, 3)
    transform = _transform(profile, "RGB")
    moved = None if transform is None else ImageCms.applyTransform(Image.fromarray(grid), transform)
    if moved is None:
        return False
    return int(np.abs(np.asarray(moved).astype(int) - grid).max()) <= _SRGB_LEVELS
