"""One model input from one image: stretched, letterboxed, or a person crop.

Follows the preprocessing that the models were published with, by choice of the transformers port or
of the original code; they differ in filters, not in geometry. Normalising pixels is left to the
labeler, dropping degenerate boxes to `persons`. A view depends on the image, the spec and the box
alone (I7).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import cv2
import numpy as np
from PIL import Image

from sapiens_batch.errors import SpecError
from sapiens_batch.images.geometry import Size, crop_map, letterbox, stretch_map
from sapiens_batch.images.resample import Kernel, sample_crop
from sapiens_batch.records import Affine, Array, Preprocess, Region, View, ViewKind, ViewSpec

T = TypeVar("T")

# The original code's filters for stretched views: (image wider than the view, otherwise). Only the
# width is looked at, as there.
_STRETCH_FILTERS = {
    "": (cv2.INTER_AREA, cv2.INTER_CUBIC),
    "seg": (cv2.INTER_AREA, cv2.INTER_CUBIC),
    "matting": (cv2.INTER_AREA, cv2.INTER_LINEAR),
    "v1": (cv2.INTER_LINEAR, cv2.INTER_LINEAR),
}
# The kernel for crops where no side shrinks. Where one does, all are bilinear: the original code
# asks for AREA there, which OpenCV's warp executes as LINEAR.
_ENLARGING_KERNELS: dict[str, Kernel] = {"": "bicubic", "v1": "bilinear"}


def make_view(image: Array, spec: ViewSpec, box: Array | None = None) -> View:
    """Make one model input.

    Args:
        image: (H, W, 3) uint8 RGB, upright, H and W at least 1.
        spec: What to make.
        box: (4,) COCO xywh in pixels of `image`, finite and of positive size; for crops only.

    Returns:
        The canvas in uint8 RGB with its map to `image`. `content` is the whole canvas except for
        letterboxed views; what a crop shows outside the image is black.

    Raises:
        SpecError: The spec names a variant that the original code does not have, or a crop has no
            box.
    """
    size = (spec.height, spec.width)
    if spec.kind is ViewKind.LETTERBOX:
        content, to_source = letterbox(_size_of(image), size)
        return View(_letterboxed(image, spec, content), to_source, content)
    whole = Region(0, 0, spec.height, spec.width)
    if spec.kind is ViewKind.STRETCH:
        return View(_stretched(image, spec), stretch_map(_size_of(image), size), whole)
    if box is None:
        raise SpecError(f"view {spec.name} is cut around a person, but no box was given")
    to_source = crop_map(box.tolist(), size)
    return View(_cropped(image, spec, to_source), to_source, whole)


def _size_of(image: Array) -> Size:
    return image.shape[0], image.shape[1]


def _letterboxed(image: Array, spec: ViewSpec, content: Region) -> Array:
    size = (content.height, content.width)
    if spec.preprocess is Preprocess.ORIGINAL:
        resized = cv2.resize(image, size[::-1], interpolation=cv2.INTER_LINEAR)
    else:
        resized = _resize_antialiased(image, size)
    canvas = np.zeros((spec.height, spec.width, 3), np.uint8)
    bottom, right = content.top + content.height, content.left + content.width
    canvas[content.top : bottom, content.left : right] = resized
    return canvas


def _stretched(image: Array, spec: ViewSpec) -> Array:
    size = (spec.height, spec.width)
    if spec.preprocess is Preprocess.TRANSFORMERS:
        return _resize_antialiased(image, size)
    shrinking, other = _of_variant(_STRETCH_FILTERS, spec.variant, spec)
    wide = spec.width < image.shape[1]
    resized: Array = cv2.resize(image, size[::-1], interpolation=shrinking if wide else other)
    return resized


def _cropped(image: Array, spec: ViewSpec, to_source: Affine) -> Array:
    variant = spec.variant if spec.preprocess is Preprocess.ORIGINAL else ""
    kernel = _of_variant(_ENLARGING_KERNELS, variant, spec)
    if max(to_source.scale_x, to_source.scale_y) > 1:
        kernel = "bilinear"
    return sample_crop(image, to_source, (spec.height, spec.width), kernel=kernel)


def _of_variant(table: Mapping[str, T], variant: str, spec: ViewSpec) -> T:
    if variant not in table:
        known = ", ".join(repr(name) for name in table)
        raise SpecError(
            f"view {spec.name}: the original code has no variant {variant!r} of {spec.kind} views; "
            f"use one of {known}"
        )
    return table[variant]


def _resize_antialiased(image: Array, size: Size) -> Array:
    """Bilinear resize with antialiasing, half-pixel centres: what torchvision does on uint8."""
    picture = Image.fromarray(image)
    if image.shape[1] < size[1] and image.shape[0] > size[0]:
        # Pillow blends columns first, which would blow a narrow, tall image up to full width
        # at full height.
        picture = picture.resize((image.shape[1], size[0]), Image.Resampling.BILINEAR)
    return np.array(picture.resize(size[::-1], Image.Resampling.BILINEAR))
