"""One model input from one image: stretched, letterboxed, or a person crop.

Follows the preprocessing that the models were published with, by choice of the transformers port or
of the original code; they differ in filters, not in geometry. Normalising pixels is left to the
labeler, dropping degenerate boxes to `persons`. A view depends on the image, the spec and the box
alone (I7). Its map leads to pixels of the full source, also where the image was decoded smaller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import cv2
import numpy as np

from sapiens_batch.errors import SpecError
from sapiens_batch.images.antialias import resize_antialiased
from sapiens_batch.images.decoded import DecodedImage
from sapiens_batch.images.geometry import (
    Size,
    covering_region,
    crop_map,
    letterbox,
    reduced_map,
    stretch_map,
    translation,
)
from sapiens_batch.images.resample import Kernel, sample_crop
from sapiens_batch.records import Affine, Array, Preprocess, Region, ViewKind, ViewSpec

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


@dataclass(frozen=True, slots=True)
class View:
    """One model input.

    Attributes:
        canvas: (height, width, 3) uint8 RGB, the size of its spec.
        to_source: From view pixels to source pixels.
        content: The part of the canvas that shows the image; the rest is padding.
    """

    canvas: Array
    to_source: Affine
    content: Region


@dataclass(frozen=True, slots=True)
class Source:
    """Pixels of an image, or of a rectangle of it.

    Attributes:
        pixels: (h, w, 3) uint8.
        size: (height, width) in source pixels.
        reduction: Source pixels per pixel along each axis.
    """

    pixels: Array
    size: Size
    reduction: int

    @classmethod
    def of(cls, image: Viewable) -> Source:
        """All that there is of an image."""
        if isinstance(image, Source):
            return image
        if isinstance(image, DecodedImage):
            return cls(image.pixels, image.size, image.reduction)
        return cls(image, (image.shape[0], image.shape[1]), 1)

    def cut(self, box: Array) -> Source:
        """The whole pixels that the visible part of a box touches."""
        step = self.reduction
        region = _region(self.size, step, box)
        rows = slice(region.top // step, -(-(region.top + region.height) // step))
        columns = slice(region.left // step, -(-(region.left + region.width) // step))
        pixels = np.ascontiguousarray(self.pixels[rows, columns])
        return Source(pixels, (region.height, region.width), step)


Viewable = DecodedImage | Array | Source
"""An upright image, or (H, W, 3) uint8 RGB pixels of one at full size, or what was made of it."""


def make_view(
    image: Viewable, spec: ViewSpec, box: Array | None = None, *, canvas: Array | None = None
) -> View:
    """Make one model input.

    Args:
        image: Its source.
        spec: What to make.
        box: (4,) COCO xywh in source pixels, finite, of positive size and partly inside the image.
            Crops are cut around it; other views show the whole pixels that its visible part
            touches instead of the whole image.
        canvas: (height, width, 3) uint8, contiguous, where it is made; default: a new one.

    Returns:
        The canvas in uint8 RGB with its map to the source. `content` is the whole canvas except
        for letterboxed views; what a crop shows outside the image is black.

    Raises:
        SpecError: The spec names a variant that the original code does not have, or a crop has no
            box.
    """
    source = Source.of(image)
    to_source, content = map_view(source.size, source.reduction, spec, box)
    if canvas is None:
        canvas = np.empty((spec.height, spec.width, 3), np.uint8)
    if spec.kind is ViewKind.CROP:
        canvas[...] = _cropped(source, spec, to_source)
    else:
        shown = source if box is None else source.cut(box)
        fill = _letterbox if spec.kind is ViewKind.LETTERBOX else _stretch
        fill(canvas, shown, spec, content)
    return View(canvas, to_source, content)


def map_view(
    source_size: Size, reduction: int, spec: ViewSpec, box: Array | None = None
) -> tuple[Affine, Region]:
    """Where a view lies in the source, without making it.

    Args:
        source_size: (height, width) of the upright source, px.
        reduction: Source pixels per decoded pixel along each axis.
        spec: What the view is.
        box: As for `make_view`.

    Returns:
        The map from view pixels to source pixels, and the part of the view that shows the image.

    Raises:
        SpecError: A crop has no box.
    """
    size = (spec.height, spec.width)
    whole = Region(0, 0, spec.height, spec.width)
    if spec.kind is ViewKind.CROP:
        if box is None:
            raise SpecError(f"view {spec.name} is cut around a person, but no box was given")
        return crop_map(box.tolist(), size), whole
    region = _region(source_size, reduction, box)
    shown_size = (region.height, region.width)
    if spec.kind is ViewKind.LETTERBOX:
        content, to_shown = letterbox(shown_size, size)
    else:
        content, to_shown = whole, stretch_map(shown_size, size)
    return to_shown.then(translation(region.left, region.top)), content


def _region(source_size: Size, reduction: int, box: Array | None) -> Region:
    """The source pixels that a view of the image, or of a box, shows."""
    if box is None:
        return Region(0, 0, *source_size)
    return covering_region(box.tolist(), source_size, multiple_of=reduction)


def _letterbox(canvas: Array, source: Source, spec: ViewSpec, content: Region) -> None:
    size = (content.height, content.width)
    if spec.preprocess is Preprocess.ORIGINAL:
        resized = cv2.resize(source.pixels, size[::-1], interpolation=cv2.INTER_LINEAR)
    else:
        resized = resize_antialiased(source.pixels, size, extent=_extent(source))
    bottom, right = content.top + content.height, content.left + content.width
    canvas[...] = 0
    canvas[content.top : bottom, content.left : right] = resized


def _stretch(canvas: Array, source: Source, spec: ViewSpec, content: Region) -> None:
    size = (content.height, content.width)
    if spec.preprocess is Preprocess.TRANSFORMERS:
        resize_antialiased(source.pixels, size, extent=_extent(source), canvas=canvas)
        return
    shrinking, other = _of_variant(_STRETCH_FILTERS, spec.variant, spec)
    wide = spec.width < source.size[1]
    cv2.resize(source.pixels, size[::-1], canvas, interpolation=shrinking if wide else other)


def _extent(source: Source) -> tuple[float, float]:
    """(height, width) of what the pixels show, in pixels."""
    return source.size[0] / source.reduction, source.size[1] / source.reduction


def _cropped(source: Source, spec: ViewSpec, to_source: Affine) -> Array:
    variant = spec.variant if spec.preprocess is Preprocess.ORIGINAL else ""
    kernel = _of_variant(_ENLARGING_KERNELS, variant, spec)
    to_pixels = to_source.then(reduced_map(source.reduction).inverse())
    if max(to_pixels.scale_x, to_pixels.scale_y) > 1:
        kernel = "bilinear"
    return sample_crop(source.pixels, to_pixels, (spec.height, spec.width), kernel=kernel)


def _of_variant(table: Mapping[str, T], variant: str, spec: ViewSpec) -> T:
    if variant not in table:
        known = ", ".join(repr(name) for name in table)
        raise SpecError(
            f"view {spec.name}: the original code has no variant {variant!r} of {spec.kind} views; "
            f"use one of {known}"
        )
    return table[variant]
