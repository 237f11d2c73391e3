"""Shards that are unlike the others: their means against the mean of all.

A z-score says how far a shard's mean is from the job's, in standard errors for a shard of its size;
an effect says the same in standard deviations of single samples, which does not grow with the
shard. Both are given, since large shards make any difference significant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sapiens_batch.report.tally import Moments

# Of 100,000 shards without drift about 6 exceed this by chance.
Z_LIMIT: Final = 4.0
_SHOWN_SHARDS: Final = 10
_MIN_VARIANCE: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Outlier:
    """A shard that differs.

    Attributes:
        shard: Its source-relative name.
        z: Deviation from the job's mean in standard errors.
        effect: The same in standard deviations of samples.
        num_samples: Values that its mean is of.
    """

    shard_id: str
    shard: str
    mean: float
    z: float
    effect: float
    num_samples: int


@dataclass(frozen=True, slots=True)
class Drift:
    """One metric over all shards.

    Attributes:
        deviation: Standard deviation of samples.
        z: z-score by shard, in the order of the shards' names, None where a shard has no value.
        num_far: Shards beyond the limit.
        outliers: The most deviant of them.
    """

    metric: str
    mean: float
    deviation: float
    z: tuple[float | None, ...]
    num_far: int
    outliers: tuple[Outlier, ...]


def drift(metric: str, shards: Mapping[str, Moments], names: Mapping[str, str]) -> Drift | None:
    """How a metric differs between shards; None with fewer than two shards that have it.

    `shards` are its moments and `names` the source-relative names of all shards, by id.
    """
    if len(shards) < 2:
        return None
    mean, deviation = _overall(list(shards.values()))
    scores = {shard_id: _z(one, mean, deviation) for shard_id, one in shards.items()}
    far = [shard_id for shard_id, z in scores.items() if abs(z) > Z_LIMIT]
    far.sort(key=lambda shard_id: -abs(scores[shard_id]))
    outliers = tuple(
        Outlier(
            shard_id=shard_id,
            shard=names[shard_id],
            mean=shards[shard_id].total / shards[shard_id].number,
            z=scores[shard_id],
            effect=scores[shard_id] / math.sqrt(shards[shard_id].number),
            num_samples=shards[shard_id].number,
        )
        for shard_id in far[:_SHOWN_SHARDS]
    )
    ordered = sorted(names, key=lambda shard_id: (names[shard_id], shard_id))
    z = tuple(scores.get(shard_id) for shard_id in ordered)
    return Drift(metric, mean, deviation, z, len(far), outliers)


def _overall(shards: Sequence[Moments]) -> tuple[float, float]:
    """Mean and standard deviation of all values; zero deviation where they are all equal."""
    number = sum(one.number for one in shards)
    mean = sum(one.total for one in shards) / number
    squares = sum(one.squares for one in shards) / number
    variance = squares - mean**2
    # the difference of two nearly equal sums leaves rounding where there is no variance
    return mean, math.sqrt(variance) if variance > _MIN_VARIANCE * squares else 0.0


def _z(shard: Moments, mean: float, deviation: float) -> float:
    if deviation == 0:
        return 0.0
    return (shard.total / shard.number - mean) / (deviation / math.sqrt(shard.number))
