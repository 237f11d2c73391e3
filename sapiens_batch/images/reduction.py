"""By how much a JPEG may be shrunk while it is decoded.

libjpeg can leave out the fine half of each 8 x 8 block, which makes large photos several times as
fast to read. A factor is taken only if every view still has at least as many decoded pixels as
model pixels. Doing it is left to `decode`, the map back to source pixels to `geometry`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sapiens_batch.images.geometry import Size, crop_map, fit_size
from sapiens_batch.records import Array, Preprocess, ViewKind, ViewSpec

NEVER = math.inf
"""Density that forbids any reduction: what is cut from the image is not known beforehand."""

_FACTORS = (8, 4, 2)


def reduction_for(size: Size, views: Sequence[ViewSpec], crop_density: float) -> int:
    """The largest of 8, 4, 2 and 1 that leaves every view enough pixels.

    Args:
        size: (height, width) of the upright source, px.
        views: Views of the whole image.
        crop_density: The most view pixels per source pixel that crops will need.
    """
    density = max([crop_density, *(_density(size, view) for view in views)], default=NEVER)
    return next((factor for factor in _FACTORS if factor * density <= 1), 1)


def crop_density(boxes: Array, views: Sequence[ViewSpec]) -> float:
    """View pixels per source pixel of the crops of some persons.

    Args:
        boxes: (P, 4) COCO xywh in source pixels, of positive size.
        views: Views that are made of each person.

    Returns:
        The highest density over all of them; 0 where nothing is cut.
    """
    return max((_density_of(box, view) for box in boxes.tolist() for view in views), default=0.0)


def _density_of(box: list[float], view: ViewSpec) -> float:
    if view.kind is not ViewKind.CROP:
        return _density((max(1, math.floor(box[3])), max(1, math.floor(box[2]))), view)
    to_source = crop_map(box, (view.height, view.width))
    return 1 / min(to_source.scale_x, to_source.scale_y)


def _density(size: Size, view: ViewSpec) -> float:
    # The original code's filters depend on the size that they are given.
    if view.preprocess is Preprocess.ORIGINAL:
        return NEVER
    height, width = view.height, view.width
    if view.kind is ViewKind.LETTERBOX:
        height, width = fit_size(size, (height, width))
    return max(height / size[0], width / size[1])
