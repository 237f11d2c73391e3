"""Where the pixels of a view, a heatmap or a frame lie in the source image.

Pure arithmetic on sizes and boxes: every map is an axis-aligned `Affine` in float64, so its inverse
is exact to rounding. Resampling pixels along these maps is left to `views`.

Two conventions meet here and must not be mixed. Resized images (stretch, letterbox, frame) use
half-pixel centres: the outer edges of both grids coincide. Person crops and heatmaps use UDP: the
centres of the outermost pixels coincide, hence the `size - 1`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sapiens_batch.records import Affine, Frame, Region

Size = tuple[int, int]

# Side lengths of the box are enlarged by this much before cropping, as in training.
CROP_PADDING = 1.25


def stretch_map(source_size: Size, view_size: Size) -> Affine:
    """The map from a stretched image to its source, half-pixel centres.

    Args:
        source_size: (height, width) of the source image, px.
        view_size: (height, width) of the resized image, px.

    Returns:
        From view pixels to source pixels.
    """
    scale_y = source_size[0] / view_size[0]
    scale_x = source_size[1] / view_size[1]
    return Affine(scale_x, scale_y, 0.5 * scale_x - 0.5, 0.5 * scale_y - 0.5)


def fit_size(source_size: Size, canvas_size: Size) -> Size:
    """The largest (height, width) inside a canvas that keeps the source's aspect.

    Truncates like the models' own preprocessing and never falls below one pixel.
    """
    scale = min(canvas_size[1] / source_size[1], canvas_size[0] / source_size[0])
    return max(1, int(source_size[0] * scale)), max(1, int(source_size[1] * scale))


def letterbox(source_size: Size, view_size: Size) -> tuple[Region, Affine]:
    """Where an image lies on a letterboxed canvas: aspect kept, centred, zeros around it.

    Args:
        source_size: (height, width) of the source image, px.
        view_size: (height, width) of the canvas, px.

    Returns:
        The part of the canvas that shows the image (an odd pixel of padding goes to the right and
        the bottom), and the map from canvas pixels to source pixels.
    """
    height, width = fit_size(source_size, view_size)
    content = Region((view_size[0] - height) // 2, (view_size[1] - width) // 2, height, width)
    to_content = translation(-content.left, -content.top)
    return content, to_content.then(stretch_map(source_size, (height, width)))


def frame_for(source_size: Size, canvas_size: Size) -> Frame:
    """The undistorted grid at the top left of an array row on which image-level labels live.

    It has the size of the letterbox content, so letterboxed labels reach it without resampling.

    Args:
        source_size: (height, width) of the source image, px.
        canvas_size: (height, width) of the array row, px.
    """
    height, width = fit_size(source_size, canvas_size)
    return Frame(height, width, stretch_map(source_size, (height, width)))


def crop_map(
    box_xywh: Sequence[float], view_size: Size, *, padding: float = CROP_PADDING
) -> Affine:
    """The map from a person crop to the source: box enlarged, brought to the view's aspect, UDP.

    Args:
        box_xywh: (4,) COCO box in source pixels, positive size; it may reach out of the image.
        view_size: (height, width) of the crop, px, both at least 2.
        padding: Factor on the box's sides.

    Returns:
        From crop pixels to source pixels: crop column 0 and the last one lie on the left and right
        edge of the enlarged box.
    """
    left, top, width, height = (float(value) for value in box_xywh)
    aspect = view_size[1] / view_size[0]
    span_x = padding * max(width, height * aspect)
    span_y = padding * max(height, width / aspect)
    return Affine(
        span_x / (view_size[1] - 1),
        span_y / (view_size[0] - 1),
        left + width / 2 - span_x / 2,
        top + height / 2 - span_y / 2,
    )


def reduced_map(reduction: int) -> Affine:
    """The map from the pixels of a reduced image to its source: blocks of `reduction` pixels.

    Not a `stretch_map`: where the source's size is no multiple, the last pixel covers less.
    """
    return Affine(reduction, reduction, (reduction - 1) / 2, (reduction - 1) / 2)


def covering_region(
    box_xywh: Sequence[float], source_size: Size, *, multiple_of: int = 1
) -> Region:
    """The smallest rectangle of whole pixels that holds the visible part of a box.

    Args:
        box_xywh: (4,) COCO box in source pixels; a part of it lies inside the image.
        source_size: (height, width) of the source image, px.
        multiple_of: Of which the edges are multiples, as far as the image reaches.

    Returns:
        At least one pixel, inside the image.
    """
    left, top, width, height = (float(value) for value in box_xywh)
    rows = _covering_range(top, top + height, source_size[0], multiple_of)
    columns = _covering_range(left, left + width, source_size[1], multiple_of)
    return Region(rows[0], columns[0], rows[1] - rows[0], columns[1] - columns[0])


def _covering_range(start: float, stop: float, length: int, step: int) -> tuple[int, int]:
    first = math.floor(min(max(start, 0), length - 1) / step) * step
    last = min(length, math.ceil(min(max(stop, 0), length) / step) * step)
    return first, max(last, first + 1)


def translation(left: float, top: float) -> Affine:
    """The map that moves the origin to (left, top)."""
    return Affine(1.0, 1.0, float(left), float(top))


def heatmap_map(crop: Affine, view_size: Size, heatmap_size: Size) -> Affine:
    """The map from a pose heatmap to the source, UDP: corner centres coincide with the crop's.

    Args:
        crop: From crop pixels to source pixels.
        view_size: (height, width) of the crop, px.
        heatmap_size: (height, width) of the heatmap, px, both at least 2.
    """
    scale_y = (view_size[0] - 1) / (heatmap_size[0] - 1)
    scale_x = (view_size[1] - 1) / (heatmap_size[1] - 1)
    return Affine(scale_x, scale_y, 0.0, 0.0).then(crop)
