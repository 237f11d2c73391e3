"""How sure a model is of a dense label: few numbers for each view, from its raw outputs.

They are taken at every fourth pixel of every eighth row of the head's map: a share or a mean over
24,576 of 786,432 pixels is as good, and costs a thirtieth. What is asked for is in the job file,
what the numbers are called is left to the tasks. A view's numbers depend on that view alone (I7).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor

from sapiens_batch.tasks.masks import highest_class

STRIDES: Final = (8, 4)
"""Rows and columns from one sample to the next; more rows would cost more memory traffic."""
LOW_PERCENTILE: Final = 0.1
UNDECIDED_ALPHA: Final = (0.05, 0.95)
"""Alpha between these is neither background nor foreground."""


def sampled(maps: Tensor) -> Tensor:
    """Every fourth pixel of every eighth row of (..., h, w)."""
    down, across = STRIDES
    top, left = (
        min(step // 2, side - 1) for step, side in zip(STRIDES, maps.shape[-2:], strict=True)
    )
    return maps[..., top::down, left::across]


class ClassConfidence(NamedTuple):
    """Confidence of a class mask.

    Attributes:
        of_class: (K,) mean winning probability where each class wins, NaN where it does nowhere.
        low_of_class: (K,) its 10th percentile.
        overall: () mean winning probability.
        entropy: () mean entropy of the classes, nats.
        unsure: () share of pixels whose winning probability is below a half.
    """

    of_class: Tensor
    low_of_class: Tensor
    overall: Tensor
    entropy: Tensor
    unsure: Tensor


def class_confidence(logits: Tensor) -> ClassConfidence:
    """Confidence of the mask of (K, H, W) finite logits."""
    some = sampled(logits).flatten(1)  # (K, S)
    below = some - some.amax(0)
    parts = below.exp()
    total = parts.sum(0)
    winning = 1 / total
    entropy = total.log() - parts.mul_(below).sum(0) / total
    of_class, low_of_class = _by_class(highest_class(some), winning, len(logits))
    unsure = (winning < 0.5).float().mean()
    return ClassConfidence(of_class, low_of_class, winning.mean(), entropy.mean(), unsure)


def _by_class(classes: Tensor, values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """(count,) mean and low percentile of (S,) values from 0 to 1 by class; NaN for none."""
    counts = torch.bincount(classes, minlength=count)
    stops = counts.cumsum(0)
    starts = stops - counts
    # sorted by class, then by value: sums in a fixed order, unlike those of scattering
    numbers = torch.arange(count, device=counts.device).mul_(2).repeat_interleave(counts)
    ordered = classes.float().mul_(2).add_(values).sort().values - numbers
    sums = torch.cat([ordered.new_zeros(1), ordered]).cumsum(0, dtype=torch.float64)
    places = starts + ((counts - 1).clamp(min=0) * LOW_PERCENTILE).long()
    means = (sums[stops] - sums[starts]).float() / counts
    low = ordered[places.clamp(max=len(ordered) - 1)]
    return means, low.masked_fill(counts == 0, torch.nan)


def undecided(alpha: Tensor) -> Tensor:
    """() share of (h, w) alpha that is neither background nor foreground."""
    low, high = UNDECIDED_ALPHA
    some = sampled(alpha)
    return ((some > low) & (some < high)).float().mean()


def angles(some: Tensor, others: Tensor) -> Tensor:
    """(n, h, w) degrees between (n, 3, h, w) vectors of any length."""
    across = torch.linalg.cross(some, others, dim=1).square().sum(1).sqrt()
    return torch.atan2(across, (some * others).sum(1)).rad2deg()


def distances(some: Tensor, others: Tensor) -> Tensor:
    """(n, h, w) distances between (n, C, h, w) values."""
    return (some - others).square().sum(1).sqrt()
