"""Resizing whole images as the transformers port does: bilinear, antialiased, half-pixel centres.

Uses torch's own operator for uint8, which is the very one that the port calls: equal to the last
bit, and four times as fast as Pillow's (4 ms against 16 ms from 1600 x 1062 to 1024 x 768 on one
AVX2 core). torch is imported on first use, so that reading sizes and decoding stay light. Which
pixels to resize, and to what, is left to `views`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cv2

from sapiens_batch.images.geometry import Size
from sapiens_batch.records import Array

if TYPE_CHECKING:
    from torch import Tensor


def resize_antialiased(
    image: Array,
    size: Size,
    *,
    extent: tuple[float, float] | None = None,
    canvas: Array | None = None,
) -> Array:
    """Resize an image.

    Args:
        image: (H, W, 3) uint8, contiguous along its rows.
        size: (height, width) of the result, px.
        extent: (height, width) in pixels of `image` that the result shows, from the top left; it
            may end inside the last row and column. Default: the whole image.
        canvas: (height, width, 3) uint8, contiguous, where the result is made; default: a new one.

    Returns:
        (height, width, 3) uint8, contiguous.
    """
    import torch

    height, width = image.shape[:2] if extent is None else extent
    writeable = image if image.flags.writeable else image.copy()
    pixels = torch.from_numpy(writeable).permute(2, 0, 1)[None]  # (1, 3, H, W), channels last
    if width < size[1] and height > size[0]:
        # Columns are blended first, which would blow a narrow, tall image up to full width at
        # full height.
        pixels = _resize(pixels, (size[0], image.shape[1]), (height, image.shape[1]))
        height = size[0]
    resized = _resize(pixels, size, (height, width))
    interleaved: Array = cv2.merge(list(resized[0].numpy()), canvas)  # (3, height, width) planes
    return interleaved


def _resize(pixels: Tensor, size: Size, extent: tuple[float, float]) -> Tensor:
    import torch

    # interpolate() derives the scale from whole sizes, the operator below it takes it as given.
    resized: Tensor = torch.ops.aten._upsample_bilinear2d_aa(
        pixels, list(size), False, size[0] / extent[0], size[1] / extent[1]
    )
    return resized
