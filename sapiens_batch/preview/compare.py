"""Two jobs over one corpus in numbers: how far their labels are apart, and which samples most.

Walks over the common samples shard by shard; memory holds the rows of the shards at hand, one
number per sample and measure, and the few samples that differ most.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sapiens_batch.labelset import LabelSet, SampleLabels
from sapiens_batch.labelset.draw import Place
from sapiens_batch.labelset.filters import Filter
from sapiens_batch.labelset.joined import JoinedBy, join_labels
from sapiens_batch.preview.measure import MEASURES, matched_persons, measure_pair

QUANTILES = (0.5, 0.95, 1.0)


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """What is compared.

    Attributes:
        by: How samples are paired, see `join_labels`.
        wanted: Rows of the first job's `images`.
        min_score: Keypoints count where both jobs score them higher.
        worst: Samples kept for each measure.
    """

    by: JoinedBy = "key"
    wanted: Filter | None = None
    min_score: float = 0.3
    worst: int = 6


@dataclass(frozen=True, slots=True)
class Spread:
    """One measure over all samples: its number of samples, mean, and median, 95 %, extreme."""

    num_samples: int
    mean: float
    median: float
    p95: float
    extreme: float


@dataclass(frozen=True, slots=True)
class Difference:
    """One sample that differs much: by how much, its key in the first job, its places in both."""

    value: float
    key: str
    first: Place
    second: Place


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two jobs differ.

    Attributes:
        num_samples: Samples that both have.
        statuses: Common samples by status in the first and the second job.
        num_persons: Persons of the first job, of the second, and matched ones, in samples that
            both label.
    """

    first: str
    second: str
    num_samples: int
    num_only_first: int
    num_only_second: int
    statuses: dict[str, int]
    num_persons: dict[str, int]
    spreads: dict[str, Spread]
    worst: dict[str, tuple[Difference, ...]]

    def to_json(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return asdict(self)


def compare_labels(first: LabelSet, second: LabelSet, options: CompareOptions) -> Comparison:
    """Compare the committed labels of two jobs.

    Raises:
        InputError: Keys are not unique and `by` is `key`, or the filter is none.
    """
    joined = join_labels(first, second, by=options.by, wanted=options.wanted)
    statuses: Counter[str] = Counter()
    persons: Counter[str] = Counter({"first": 0, "second": 0, "matched": 0})
    tally = _Tally(options.worst)
    for mine, other in joined.samples():
        statuses[f"{mine.row['status']} → {other.row['status']}"] += 1
        if "quarantined" in (mine.row["status"], other.row["status"]):
            continue
        persons["first"] += len(mine.persons)
        persons["second"] += len(other.persons)
        persons["matched"] += len(matched_persons(mine, other))
        for name, value in measure_pair(mine, other, min_score=options.min_score).items():
            tally.add(name, value, mine, other)
    return Comparison(
        first=first.job.name,
        second=second.job.name,
        num_samples=len(joined),
        num_only_first=joined.num_only_first,
        num_only_second=joined.num_only_second,
        statuses=dict(sorted(statuses.items())),
        num_persons=dict(persons),
        spreads=tally.spreads(),
        worst=tally.worst(),
    )


class _Tally:
    """Numbers by measure, and the samples that differ most."""

    def __init__(self, worst: int) -> None:
        self._worst = worst
        self._values: dict[str, array[float]] = {}
        self._heaps: dict[str, list[tuple[float, int, Difference]]] = {}
        self._count = 0

    def add(self, name: str, value: float, mine: SampleLabels, other: SampleLabels) -> None:
        self._values.setdefault(name, array("d")).append(value)
        heap = self._heaps.setdefault(name, [])
        badness = value if MEASURES[name].worse == "high" else -value
        # the count breaks ties, earlier samples first
        self._count -= 1
        difference = Difference(value, mine.row["key"], _place(mine), _place(other))
        if len(heap) < self._worst:
            heapq.heappush(heap, (badness, self._count, difference))
        elif self._worst:
            heapq.heappushpop(heap, (badness, self._count, difference))

    def spreads(self) -> dict[str, Spread]:
        found = {}
        for name in MEASURES:
            if name in self._values:
                values = np.asarray(self._values[name])
                signed = values if MEASURES[name].worse == "high" else -values
                median, p95, extreme = np.abs(np.quantile(signed, QUANTILES))
                mean = float(values.mean())
                found[name] = Spread(len(values), mean, float(median), float(p95), float(extreme))
        return found

    def worst(self) -> dict[str, tuple[Difference, ...]]:
        return {
            name: tuple(one[2] for one in sorted(self._heaps[name], reverse=True))
            for name in MEASURES
            if name in self._heaps
        }


def _place(sample: SampleLabels) -> Place:
    return sample.row["shard_id"], int(sample.row["index"])
