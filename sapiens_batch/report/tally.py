"""Counts and histograms over all committed rows, gathered shard by shard.

One shard's rows are in memory at a time; what stays is a few arrays and three numbers a shard and
metric. What the numbers mean is said in `card`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from sapiens_batch.labelset import LabelSet
from sapiens_batch.records import Array, Level
from sapiens_batch.sheets.groups import keypoint_groups
from sapiens_batch.sinks.parquet import column_values

SCORE_EDGES: Final = tuple(np.linspace(0, 1, 21).round(2).tolist())
SHARE_EDGES: Final = (0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 1.0)
MEGAPIXEL_EDGES: Final = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, float("inf"))
ASPECT_EDGES: Final = (0.0, 0.5, 0.66, 0.8, 1.0, 1.25, 1.5, 2.0, float("inf"))
MAX_PERSONS: Final = 10


@dataclass(frozen=True, slots=True)
class Moments:
    """Number, sum and sum of squares of a metric's values in one shard."""

    number: int
    total: float
    squares: float

    @classmethod
    def of(cls, values: Array) -> Moments:
        """The moments of (n,) values."""
        precise = values.astype(np.float64)
        return cls(len(precise), float(precise.sum()), float((precise**2).sum()))


@dataclass
class Tally:
    """What a walk over the tables found.

    Attributes:
        persons_per_image: (11,) images that could be labeled, by persons; the last is 10 or more.
        scores: By keypoint group, counts over `SCORE_EDGES`.
        score_sums: By keypoint group, sum of scores.
        class_images: (C,) images that have the class at all.
        class_share_sums: (C,) sum over images of the share of the image.
        class_histograms: (C, 9) images over `SHARE_EDGES`, those without the class left out.
        megapixels: (10,) images over `MEGAPIXEL_EDGES`.
        aspects: (8,) images over `ASPECT_EDGES`, width over height.
        num_masks: Images with a part mask.
        shards: By shard id, moments by metric.
    """

    persons_per_image: Array = field(default_factory=lambda: np.zeros(MAX_PERSONS + 1, np.int64))
    scores: dict[str, Array] = field(default_factory=dict)
    score_sums: dict[str, float] = field(default_factory=dict)
    class_images: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    class_share_sums: Array = field(default_factory=lambda: np.zeros(0))
    class_histograms: Array = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    megapixels: Array = field(default_factory=lambda: np.zeros(len(MEGAPIXEL_EDGES) - 1, np.int64))
    aspects: Array = field(default_factory=lambda: np.zeros(len(ASPECT_EDGES) - 1, np.int64))
    num_masks: int = 0
    shards: dict[str, dict[str, Moments]] = field(default_factory=dict)

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics that some shard has, in a fixed order."""
        return list(dict.fromkeys(name for metrics in self.shards.values() for name in metrics))

    def moments(self, metric: str) -> dict[str, Moments]:
        """Moments of one metric by shard id, shards without a value left out."""
        return {
            shard_id: metrics[metric]
            for shard_id, metrics in self.shards.items()
            if metric in metrics and metrics[metric].number
        }


def tally(labels: LabelSet) -> Tally:
    """Walk over all committed rows."""
    found = Tally()
    groups = _groups(labels)
    for shard_id in labels.shard_ids():
        columns = ["index", "status", "height", "width", "num_persons"]
        columns += ["seg_class_pixels"] if "seg_class_pixels" in labels.images.schema.names else []
        images = labels.shard_rows(shard_id, Level.IMAGE, columns=columns)
        metrics = dict(_count_images(found, images))
        if groups:
            persons = labels.shard_rows(shard_id, Level.PERSON, columns=["keypoint_scores"])
            metrics |= _count_persons(found, persons, groups)
        found.shards[shard_id] = {name: Moments.of(values) for name, values in metrics.items()}
    return found


def _groups(labels: LabelSet) -> Mapping[str, Sequence[int]]:
    schema = labels.schemas.get("pose")
    if schema is None:
        return {}
    names = schema.metadata.get("keypoints")
    if not names:
        return {"all": range(schema.columns[0].shape[0])}
    return {str(group): indices for group, indices in keypoint_groups(names).items()}


def _count_images(found: Tally, images: pa.Table) -> Iterator[tuple[str, Array]]:
    status = np.asarray(images["status"].to_pylist(), dtype=object)
    yield "quarantined", (status == "quarantined").astype(np.float64)
    labeled = status != "quarantined"
    persons = images["num_persons"].to_numpy()[labeled]
    found.persons_per_image += np.bincount(
        np.minimum(persons, MAX_PERSONS), minlength=MAX_PERSONS + 1
    )
    yield "persons_per_image", persons
    height = images["height"].to_numpy(zero_copy_only=False).astype(np.float64)
    width = images["width"].to_numpy(zero_copy_only=False).astype(np.float64)
    sized = np.isfinite(height) & np.isfinite(width) & (height > 0)
    megapixels = height[sized] * width[sized] / 1e6
    found.megapixels += np.histogram(megapixels, MEGAPIXEL_EDGES)[0]
    found.aspects += np.histogram(width[sized] / height[sized], ASPECT_EDGES)[0]
    yield "megapixels", megapixels
    if "seg_class_pixels" in images.column_names:
        pixels, present = column_values(images["seg_class_pixels"])
        yield "foreground_share", _count_classes(found, pixels[present])


def _count_classes(found: Tally, pixels: Array) -> Array:
    """Adds (n, C) pixel counts; returns (n,) shares that are not background."""
    shares = pixels / np.maximum(1, pixels.sum(axis=1, keepdims=True))
    if not found.class_images.size:
        found.class_images = np.zeros(shares.shape[1], np.int64)
        found.class_share_sums = np.zeros(shares.shape[1])
        found.class_histograms = np.zeros((shares.shape[1], len(SHARE_EDGES) - 1), np.int64)
    found.num_masks += len(shares)
    found.class_images += (pixels > 0).sum(axis=0)
    found.class_share_sums += shares.sum(axis=0)
    for number in range(shares.shape[1]):
        here = shares[:, number][pixels[:, number] > 0]
        found.class_histograms[number] += np.histogram(here, SHARE_EDGES)[0]
    foreground: Array = 1 - shares[:, 0]
    return foreground


def _count_persons(
    found: Tally, persons: pa.Table, groups: Mapping[str, Sequence[int]]
) -> dict[str, Array]:
    values, present = column_values(persons["keypoint_scores"])
    scores = values[present]
    for group, indices in groups.items():
        mine = scores[:, list(indices)] if len(scores) else np.zeros((0, 1))
        counts = np.histogram(np.clip(mine, 0, 1), SCORE_EDGES)[0]
        found.scores[group] = found.scores.get(group, 0) + counts
        found.score_sums[group] = found.score_sums.get(group, 0.0) + float(mine.sum())
    return {"mean_score": scores.mean(axis=1)} if len(scores) else {}
