"""From a frame to source pixels: nearest for class maps, bilinear for numeric maps.

Maps are axis-aligned, so that rows and columns are resampled one after the other, exactly, without
an image library's fixed-point coordinates. Pixel centres are at integers on both sides.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from sapiens_batch.records import Affine, Array, ArrayField

Interpolation = Literal["nearest", "bilinear"]


def interpolation_of(field: ArrayField) -> Interpolation:
    """How the values of an array may be resampled: classes cannot be mixed."""
    return "nearest" if field.codec == "zstd" else "bilinear"


class Placed(NamedTuple):
    """A map on the part of the source that its frame covers.

    Attributes:
        values: (..., h, w) in source pixels.
        rows: The h rows of the source.
        columns: The w columns of the source.
    """

    values: Array
    rows: slice
    columns: slice


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
    placed = place(values, affine, size, interpolation=interpolation)
    if placed.values.shape[-2:] == size:
        return placed.values
    whole = np.full((*values.shape[:-2], *size), fill_value, values.dtype)
    whole[..., placed.rows, placed.columns] = placed.values
    return whole


def place(
    values: Array, affine: Affine, size: tuple[int, int], *, interpolation: Interpolation
) -> Placed:
    """Resample a map onto the part of the source grid that its frame covers.

    Args:
        values: (..., h, w) on the frame.
        affine: From frame pixels to source pixels.
        size: (height, width) of the source image.
        interpolation: How to take values between pixel centres.

    Returns:
        The map in the dtype of `values`; of no pixels where the frame lies outside the source.
    """
    down = _positions(size[0], affine.scale_y, affine.offset_y)
    across = _positions(size[1], affine.scale_x, affine.offset_x)
    rows, columns = _inside(down, values.shape[-2]), _inside(across, values.shape[-1])
    down, across = down[rows], across[columns]
    if interpolation == "nearest":
        return Placed(_nearest(_nearest(values, down, -2), across, -1), rows, columns)
    mapped = _bilinear(_bilinear(values.astype(np.float32), down, -2), across, -1)
    if np.issubdtype(values.dtype, np.integer):
        mapped = np.rint(mapped)
    return Placed(mapped.astype(values.dtype, copy=False), rows, columns)


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


def _inside(positions: Array, num: int) -> slice:
    """The source pixels along an axis that a frame of `num` pixels covers."""
    # A pixel reaches half its size beyond its centre; 1e-6 absorbs the rounding of the affine.
    inside = np.flatnonzero((positions >= -0.5 - 1e-6) & (positions <= num - 0.5 + 1e-6))
    return slice(int(inside[0]), int(inside[-1]) + 1) if inside.size else slice(0, 0)


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
