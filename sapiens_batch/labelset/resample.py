"""From a frame to source pixels: nearest for class maps, bilinear for numeric maps.

Maps are axis-aligned, so that rows and columns are resampled one after the other, exactly, without
an image library's fixed-point coordinates. Pixel centres are at integers on both sides.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from sapiens_batch.records import Affine, Array

Interpolation = Literal["nearest", "bilinear"]


def to_source(
    values: Array,
    affine: Affine,
    size: tuple[int, int],
    *,
    interpolation: Interpolation,
    fill_value: float,
) -> Array:
    """Resample a map onto the source grid.

    Args:
        values: (..., h, w) on the frame.
        affine: From frame pixels to source pixels.
        size: (height, width) of the source image.
        interpolation: How to take values between pixel centres.
        fill_value: Stands where the source lies outside the frame.

    Returns:
        (..., height, width) in the dtype of `values`.
    """
    down = _positions(size[0], affine.scale_y, affine.offset_y)
    across = _positions(size[1], affine.scale_x, affine.offset_x)
    if interpolation == "nearest":
        mapped = _nearest(_nearest(values, down, -2), across, -1)
    else:
        precise = values.astype(np.float32)
        mapped = _bilinear(_bilinear(precise, down, -2), across, -1)
        if np.issubdtype(values.dtype, np.integer):
            mapped = np.rint(mapped)
    inside = np.outer(_inside(down, values.shape[-2]), _inside(across, values.shape[-1]))
    placed: Array = np.where(inside, mapped, np.asarray(fill_value)).astype(values.dtype)
    return placed


def renormalize(vectors: Array, axis: int) -> Array:
    """Vectors of unit length along an axis, in their dtype; zero vectors stay zero."""
    precise = vectors.astype(np.float32)
    length = np.linalg.norm(precise, axis=axis, keepdims=True)
    unit: Array = (precise / np.where(length == 0, 1, length)).astype(vectors.dtype)
    return unit


def _positions(num: int, scale: float, offset: float) -> Array:
    """(num,) frame coordinates of source pixel centres along one axis."""
    positions: Array = (np.arange(num) - offset) / scale
    return positions


def _inside(positions: Array, num: int) -> Array:
    # A pixel reaches half its size beyond its centre; 1e-6 absorbs the rounding of the affine.
    inside: Array = (positions >= -0.5 - 1e-6) & (positions <= num - 0.5 + 1e-6)
    return inside


def _nearest(values: Array, positions: Array, axis: int) -> Array:
    last = values.shape[axis] - 1
    index = np.clip(np.floor(positions + 0.5), 0, last).astype(np.intp)
    return np.take(values, index, axis)


def _bilinear(values: Array, positions: Array, axis: int) -> Array:
    last = values.shape[axis] - 1
    clipped = np.clip(positions, 0, last)
    low = np.floor(clipped).astype(np.intp)
    shape = [1] * values.ndim
    shape[axis] = len(positions)
    weight = (clipped - low).astype(np.float32).reshape(shape)
    first = np.take(values, low, axis)
    second = np.take(values, np.minimum(low + 1, last), axis)
    # A neighbour without weight must not count, also where it is NaN.
    mixed: Array = np.where(weight == 0, first, first * (1 - weight) + second * weight)
    return mixed
