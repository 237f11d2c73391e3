"""Dense labels as pictures: part masks, normals, depth, mattes, albedo.

Arrays come in their stored layout and on any grid; resampling them onto the picture is done before
(`panels`). Where there is no label, the picture shows a chequered ground, never a made-up value.
"""

from __future__ import annotations

from typing import Any, Final

import cv2
import numpy as np

from sapiens_batch.records import NO_CLASS, Array

_GROUND: Final = (70, 92)
_BRIGHT_GROUND: Final = (176, 214)
# Parts stay recognisable and the photo shows through.
_MASK_OPACITY: Final = 0.62
_EDGE: Final = (250, 250, 250)
_MIN_RELIEF_PIXELS: Final = 64


def ground(size: tuple[int, int], *, bright: bool = False, cell: int = 8) -> Array:
    """(h, w, 3) uint8 chequered ground."""
    dark, light = _BRIGHT_GROUND if bright else _GROUND
    rows, columns = np.indices(size) // cell
    grey = np.where((rows + columns) % 2 == 0, dark, light).astype(np.uint8)
    chequered: Array = np.repeat(grey[..., None], 3, axis=2)
    return chequered


def mask_picture(mask: Array, palette: Array, photo: Array | None) -> Array:
    """Classes in their colours, laid over the photo, with thin edges between parts.

    Args:
        mask: (h, w) uint8 classes; 255 where there is no label.
        palette: (C, 3) uint8 RGB.
        photo: (h, w, 3) uint8 to lay the colours over; None for plain colours.
    """
    table = np.zeros((256, 3), np.uint8)
    table[: len(palette)] = palette
    coloured = table[mask]
    under = ground(mask.shape) if photo is None else cv2.cvtColor(
        cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB
    )  # fmt: skip
    opacity = np.where(mask == 0, 0.25, _MASK_OPACITY if photo is not None else 1.0)
    opacity = np.where(mask == NO_CLASS, 0, opacity)[..., None]
    mixed: Array = (coloured * opacity + under * (1 - opacity)).astype(np.uint8)
    edges = cv2.morphologyEx(mask, cv2.MORPH_GRADIENT, np.ones((2, 2), np.uint8)) > 0
    mixed[edges] = (mixed[edges] * 0.45 + np.array(_EDGE) * 0.55).astype(np.uint8)
    return mixed


def normal_picture(normals: Array) -> Array:
    """Unit normals (3, h, w) as colours, (n + 1) / 2: red right, green up, blue to the viewer."""
    finite = np.isfinite(normals).all(axis=0)
    colours = np.clip((np.nan_to_num(normals.astype(np.float32)) + 1) * 127.5, 0, 255)
    picture = np.moveaxis(colours, 0, -1).astype(np.uint8)
    return _on_ground(picture, finite)


def depth_range(depth: Array, persons: Array | None = None) -> tuple[float, float] | None:
    """(near, far) that the colours are spread over, or None where there is no depth.

    They hold 96 % of the finite depths. Where it is known what belongs to persons, far is brought
    near them, so that a distant background does not swallow their relief.

    Args:
        depth: (h, w) metres.
        persons: (h, w) bool.
    """
    usable = np.isfinite(depth) & (depth > 0)
    if not usable.any():
        return None
    near, far = np.percentile(depth[usable].astype(np.float32), (2, 98))
    if persons is not None and (usable & persons).sum() >= _MIN_RELIEF_PIXELS:
        near, back = np.percentile(depth[usable & persons].astype(np.float32), (2, 98))
        far = min(far, back + 2 * (back - near))
    return float(near), float(max(far, near * (1 + 1e-4)))


def depth_picture(depth: Array, limits: tuple[float, float]) -> Array:
    """Depth (h, w) through viridis, bright is near; inverse depth, so that near keeps detail."""
    near, far = limits
    usable = np.isfinite(depth) & (depth > 0)
    safe = np.clip(np.where(usable, depth, far).astype(np.float32), near, far)
    share = (1 / safe - 1 / far) / (1 / near - 1 / far)
    coded = np.round(share * 255).astype(np.uint8)
    picture = cv2.applyColorMap(coded, cv2.COLORMAP_VIRIDIS)[..., ::-1]
    return _on_ground(picture, usable)


def depth_scale(width: int = 256) -> Array:
    """(1, width, 3) uint8: the colours of `depth_picture` from far to near."""
    ramp = np.linspace(0, 255, width).round().astype(np.uint8)[None]
    colours: Array = cv2.applyColorMap(ramp, cv2.COLORMAP_VIRIDIS)[..., ::-1]
    return colours


def matte_picture(matte: Array, photo: Array | None) -> Array:
    """A matte over a chequered ground.

    Args:
        matte: (4, h, w) foreground times alpha, then alpha, or (h, w) alpha alone; in [0, 1], or
            in [0, 255] where the type is whole.
        photo: (h, w, 3) uint8, the foreground of a matte that has none.
    """
    scale = 255.0 if np.issubdtype(matte.dtype, np.integer) else 1.0
    values = np.nan_to_num(matte.astype(np.float32)) / scale
    alpha = values[-1] if matte.ndim == 3 else values
    if matte.ndim == 3 and len(matte) == 4:
        front = np.moveaxis(values[:3], 0, -1) * 255
    else:
        plain = photo if photo is not None else np.full((*alpha.shape, 3), 255, np.uint8)
        front = plain * alpha[..., None]
    behind = ground(alpha.shape, bright=True, cell=10) * (1 - alpha[..., None])
    composed: Array = np.clip(front + behind, 0, 255).astype(np.uint8)
    return composed


def albedo_picture(albedo: Array) -> Array:
    """Albedo (3, h, w), in [0, 1] or whole numbers up to 255, as it is."""
    scale = 1.0 if np.issubdtype(albedo.dtype, np.integer) else 255.0
    finite = np.isfinite(albedo.astype(np.float32)).all(axis=0)
    values = np.clip(np.nan_to_num(albedo.astype(np.float32)) * scale, 0, 255)
    return _on_ground(np.moveaxis(values, 0, -1).astype(np.uint8), finite)


def _on_ground(picture: Array, labeled: Any) -> Array:
    if labeled.all():
        return np.ascontiguousarray(picture)
    return np.where(labeled[..., None], picture, ground(labeled.shape))
