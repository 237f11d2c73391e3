"""Class masks from logits, without resizing all of them.

A mask at another size is the highest of bilinearly resized logits. Where the four logits around a
pixel agree on the highest class, it stays the highest between them, because weights are not
negative and rounding keeps order. So only pixels at the borders of classes are interpolated.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (the name that torch's own documentation uses)

MAX_BORDER_FRACTION = 0.25
"""Above it gathering single pixels is slower than resizing all logits (measured on a CPU)."""

_DISAGREED = 255


def highest_class(logits: Tensor) -> Tensor:
    """(...) uint8 number of the highest of (K, ...) logits, the first of equals; K under 255.

    On a CPU five times faster than `argmax` over the first axis.
    """
    K = len(logits)
    highest = logits.amax(0)
    code = torch.zeros(highest.shape, dtype=torch.uint8, device=logits.device)
    is_highest = torch.empty(highest.shape, dtype=torch.bool, device=logits.device)
    for index, plane in enumerate(logits):
        torch.eq(plane, highest, out=is_highest)
        # the larger code of the earlier class wins a tie
        torch.maximum(code, is_highest.view(torch.uint8).mul_(K - index), out=code)
    return K - code


def resized_mask(logits: Tensor, size: tuple[int, int]) -> Tensor:
    """Mask of logits that are brought to another size.

    Args:
        logits: (K, H, W) float32, finite, K under 255.
        size: (height, width) of the mask.

    Returns:
        uint8 of that size: the highest class of the bilinear interpolation (half-pixel centres,
        edges replicated). Where two classes tie to within rounding either may be given.
    """
    mask = highest_class(logits)
    if mask.shape == size:
        return mask
    rows, columns = (
        _between(old, new, logits.device) for old, new in zip(mask.shape, size, strict=True)
    )
    cells = _agreed(mask)
    resized = cells.index_select(0, rows[0]).index_select(1, columns[0])
    border = (resized == _DISAGREED).nonzero()  # (m, 2)
    if len(border) > MAX_BORDER_FRACTION * resized.numel():
        whole = F.interpolate(logits[None], size=size, mode="bilinear", align_corners=False)
        return highest_class(whole[0])
    resized[border[:, 0], border[:, 1]] = _highest_at(logits, border, rows, columns)
    return resized


def _agreed(mask: Tensor) -> Tensor:
    """Class of each pixel if those to its right and below agree with it, else `_DISAGREED`."""
    right = torch.cat([mask[:, 1:], mask[:, -1:]], dim=1)
    agrees = mask == right
    agrees &= torch.cat([agrees[1:], agrees[-1:]])
    agrees &= mask == torch.cat([mask[1:], mask[-1:]])
    return torch.where(agrees, mask, _DISAGREED)


Between = tuple[Tensor, Tensor, Tensor]
"""For each new position: the old one before it, the one after it, and the weight of the latter."""


def _between(old: int, new: int, device: torch.device) -> Between:
    centres = (torch.arange(new, device=device, dtype=torch.float32) + 0.5) * (old / new) - 0.5
    centres = centres.clamp(min=0)
    before = centres.long().clamp(max=old - 1)
    return before, (before + 1).clamp(max=old - 1), centres - before


def _highest_at(logits: Tensor, places: Tensor, rows: Between, columns: Between) -> Tensor:
    """(m,) highest class of logits interpolated at (m, 2) places of the new size."""
    K, W, m = len(logits), logits.shape[2], len(places)
    y, x = places.unbind(1)
    above, below, down = (part[y] for part in rows)
    left, right, across = (part[x] for part in columns)
    index = torch.cat([above * W + left, above * W + right, below * W + left, below * W + right])
    corners = logits.flatten(1).index_select(1, index).view(K, 4, m)
    top = corners[:, 0] * (1 - across) + corners[:, 1] * across
    bottom = corners[:, 2] * (1 - across) + corners[:, 3] * across
    return highest_class(top * (1 - down) + bottom * down)
