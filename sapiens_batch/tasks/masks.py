"""Class masks from logits, without resizing or comparing most of them.

A mask at another size is the highest of bilinearly resized logits. Weights are not negative and
rounding keeps order: a class whose logits around a place are all below all those of another cannot
win between them. So each tile of the mask compares only its candidates, the classes that no other
beats so; mostly there is one. To find them costs one look at the logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (the name that torch's own documentation uses)

from sapiens_batch.tasks.resize import neighbours, resized

MAX_CANDIDATE_FRACTION: Final = 0.2
"""Above it, resizing and comparing all logits is faster (measured on a CPU)."""
_BAND: Final = 16
"""Rows of logits under a tile, about: the fastest of 8, 12, 16 and 24 (measured on a CPU)."""
_COLUMNS: Final = 8
"""Columns of a tile; whether a class survives in any of them is looked up in one int64."""


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


def resized_mask(logits: Tensor, size: tuple[int, int]) -> Tensor | None:
    """Mask of logits that are brought to another size.

    Args:
        logits: (K, H, W) float32, K under 255.
        size: (height, width) of the mask.

    Returns:
        uint8 of that size: the highest class of the bilinear interpolation (half-pixel centres,
        edges replicated), or None where some logit is NaN or infinite. Where two classes tie to
        within rounding either may be given.
    """
    if logits.device.type != "cpu":
        # few large kernels, where tiles would be many small ones
        return _of_all(logits, size) if bool(logits.isfinite().all()) else None
    H, W = logits.shape[1:]
    rows = _Axis.between(H, size[0], tile=max(1, _BAND * size[0] // max(H, size[0])))
    columns = _Axis.between(W, size[1], tile=_COLUMNS)
    candidates, is_finite = _candidates(logits, rows, columns)
    # a finite sum has finite terms; one that is not may have overflowed
    if not is_finite and not logits.isfinite().all():
        return None
    if candidates.count_nonzero() > MAX_CANDIDATE_FRACTION * candidates.numel():
        return _of_all(logits, size)
    tiles = _tiles(logits.contiguous(), candidates, rows, columns)
    grid = tiles.view(rows.num_tiles, columns.num_tiles, rows.tile, columns.tile).transpose(1, 2)
    padded = grid.reshape(rows.num_tiles * rows.tile, columns.num_tiles * columns.tile)
    return padded[: size[0], : size[1]]


def _of_all(logits: Tensor, size: tuple[int, int]) -> Tensor:
    return highest_class(resized(logits, size))


@dataclass(frozen=True, slots=True)
class _Axis:
    """Tiles along one axis of the mask; the last reaches beyond it and repeats its end.

    Attributes:
        before: (num_tiles, tile) old position before each new one.
        after: (num_tiles, tile) old position after it, the same one at the end.
        weight: (num_tiles, tile) float32 share of the latter; None where nothing is resized.
    """

    before: Tensor
    after: Tensor
    weight: Tensor | None

    @classmethod
    def between(cls, old: int, new: int, *, tile: int) -> _Axis:
        """Tiles of some new positions each."""
        places = torch.arange(-(-new // tile) * tile).clamp_(max=new - 1).view(-1, tile)
        if old == new:
            return cls(places, places, None)
        before, after, weight = neighbours(old, new)
        return cls(before[places], after[places], weight[places])

    @property
    def tile(self) -> int:
        """New positions per tile."""
        return self.before.shape[1]

    @property
    def num_tiles(self) -> int:
        """Number of tiles."""
        return self.before.shape[0]

    @property
    def sides(self) -> tuple[Tensor, ...]:
        """The old positions that make up the new ones."""
        return (self.before,) if self.weight is None else (self.before, self.after)

    def windows(self, length: int) -> list[tuple[int, int]]:
        """Half-open ranges of old positions that tiles depend on; all of `length` is in some."""
        starts = [0, *self.before[1:, 0].tolist()]
        ends = zip(self.after[:, -1].tolist(), [*starts[1:], length], strict=True)
        stops = [max(last + 1, following) for last, following in ends]
        return list(zip(starts, stops, strict=True))


def _candidates(logits: Tensor, rows: _Axis, columns: _Axis) -> tuple[Tensor, bool]:
    """(I * J, K) bool classes that may win in each tile; and whether a sum of logits is finite."""
    K, H, W = logits.shape
    candidates = torch.empty(rows.num_tiles, K, columns.num_tiles, dtype=torch.bool)
    sums = torch.empty(rows.num_tiles)
    extremes = torch.empty(2, K, W)
    highest, lowest = extremes
    as_stored = columns.weight is None and W % columns.tile == 0
    for index, (start, stop) in enumerate(rows.windows(H)):
        # both at once, while the band is in the CPU's cache
        torch.amax(logits[:, start:stop], 1, out=highest)
        torch.amin(logits[:, start:stop], 1, out=lowest)
        torch.sum(extremes, (0, 1, 2), out=sums[index])
        if columns.weight is not None:
            following = torch.cat([extremes[:, :, 1:], extremes[:, :, -1:]], 2)
            torch.maximum(highest, following[0], out=highest)
            torch.minimum(lowest, following[1], out=lowest)
        survives = highest >= lowest.amax(0)
        if not as_stored:
            survives = survives.index_select(1, columns.before.flatten())
        torch.ne(survives.view(torch.int64), 0, out=candidates[index])
    return candidates.transpose(1, 2).flatten(0, 1), bool(sums.sum().isfinite())


def _tiles(logits: Tensor, candidates: Tensor, rows: _Axis, columns: _Axis) -> Tensor:
    """(I * J, tile, tile) uint8 classes, of (K, H, W) logits and (I * J, K) candidates."""
    counts = candidates.sum(1)
    classes = candidates.nonzero()[:, 1]  # of each tile in turn, in their order
    firsts = counts.cumsum(0) - counts
    tiles = classes[firsts].byte()[:, None, None].repeat(1, rows.tile, columns.tile)
    contested = (counts > 1).nonzero()[:, 0]
    if not len(contested):
        return tiles
    # those with most candidates first, so that each further comparison is of a prefix
    counts, order = counts[contested].sort(descending=True, stable=True)
    contested = contested[order]
    firsts = firsts[contested]
    interpolate = _Interpolation(logits, contested, rows, columns)
    winners = tiles[contested]
    highest = interpolate(classes[firsts])
    for rank in range(1, int(counts[0])):
        num_left = int((counts > rank).sum())
        challengers = classes[firsts[:num_left] + rank]
        values = interpolate(challengers)
        higher = (values > highest[:num_left]).view(torch.uint8)
        # a challenger has a larger number than all before it, and the first of equals stays
        higher.mul_(challengers.byte()[:, None, None])
        torch.maximum(winners[:num_left], higher, out=winners[:num_left])
        torch.maximum(highest[:num_left], values, out=highest[:num_left])
    return tiles.index_copy_(0, contested, winners)


class _Interpolation:
    """Bilinear interpolation of logits in some tiles, each of a class of its own.

    Args:
        logits: (K, H, W), contiguous.
        tiles: (m,) which tiles.
        rows: Tiles along the height.
        columns: Tiles along the width.
    """

    def __init__(self, logits: Tensor, tiles: Tensor, rows: _Axis, columns: _Axis) -> None:
        _, H, W = logits.shape
        i, j = tiles // columns.num_tiles, tiles % columns.num_tiles
        self._shape = (rows.tile, columns.tile)
        self._down = None if rows.weight is None else rows.weight[i][:, :, None]
        self._across = None if columns.weight is None else columns.weight[j][:, None, :]
        # rows of tiles that lie in memory as they are wanted are copied as a run
        self._run = columns.tile if columns.weight is None and W % columns.tile == 0 else 1
        self._runs = logits.view(-1, self._run)
        self._plane = H * W // self._run
        self._index = torch.int32 if len(self._runs) < 1 << 31 else torch.int64
        self._places = [
            (above[i] * (W // self._run)).to(self._index)[:, :, None]
            + (beside[j, :: self._run] // self._run).to(self._index)[:, None, :]
            for above in rows.sides
            for beside in columns.sides
        ]  # each (m, tile, runs)

    def __call__(self, classes: Tensor) -> Tensor:
        """(n, tile, tile) logits in the first n tiles, of (n,) classes."""
        n = len(classes)
        planes = (classes * self._plane).to(self._index)[:, None, None]
        corners = [self._gather(planes + places[:n]) for places in self._places]
        if self._across is not None:
            across = self._across[:n]
            pairs = zip(corners[::2], corners[1::2], strict=True)
            corners = [_blend(left, right, across) for left, right in pairs]
        if self._down is not None:
            corners = [_blend(corners[0], corners[1], self._down[:n])]
        return corners[0]

    def _gather(self, places: Tensor) -> Tensor:
        if self._run == 1:
            return self._runs.view(-1).index_select(0, places.flatten()).view(-1, *self._shape)
        return F.embedding(places.flatten(), self._runs).view(-1, *self._shape)


def _blend(first: Tensor, second: Tensor, weight: Tensor) -> Tensor:
    """Weighted mean, into the first."""
    return first.mul_(1 - weight).addcmul_(second, weight)
