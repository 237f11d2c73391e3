"""Bilinear resizing of maps: half-pixel centres, edges replicated, no antialiasing.

The same as `torch.nn.functional.interpolate` to within rounding. What the maps mean is left to the
tasks.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (the name that torch's own documentation uses)


def neighbours(old: int, new: int) -> tuple[Tensor, Tensor, Tensor]:
    """Which old positions along an axis make up the new ones.

    Returns:
        (new,) int64 positions before and after each new one (the same at the end), and (new,)
        float32 weights of the latter.
    """
    centres = ((torch.arange(new).float() + 0.5) * (old / new) - 0.5).clamp_(min=0)
    before = centres.long().clamp_(max=old - 1)
    return before, (before + 1).clamp_(max=old - 1), centres - before


def resized(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """(K, H, W) float32 maps at another (height, width); themselves where nothing changes."""
    height, width = size
    if maps.shape[1:] == size:
        return maps
    if maps.device.type == "cpu" and maps.shape[2] == width:
        return _resized_rows(maps, height)
    return F.interpolate(maps[None], size=size, mode="bilinear")[0]


def _resized_rows(maps: Tensor, height: int) -> Tensor:
    """As `resized` where widths agree: 2 to 5 times as fast, a plane at a time in the cache."""
    before, after, weight = neighbours(maps.shape[1], height)
    below = weight[:, None]
    above = 1 - below
    made = maps.new_empty(len(maps), height, maps.shape[2])
    for plane, out in zip(maps, made, strict=True):
        torch.index_select(plane, 0, before, out=out)
        out.mul_(above).addcmul_(plane.index_select(0, after), below)
    return made
