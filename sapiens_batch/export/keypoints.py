"""Keypoints as datasets write them: a subset by name, and visibility from a stated score.

Models give every point a position and a score; datasets say whether a point is visible. The
threshold between the two is the exporter's option and is recorded with the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from sapiens_batch.errors import InputError
from sapiens_batch.records import Array, LabelSchema
from sapiens_batch.sheets.groups import BODY17

Subset = Literal["all", "body17"]

_BODY17_SKELETON = (
    (15, 13), (13, 11), (16, 14), (14, 12), (11, 12), (5, 11), (6, 12), (5, 6), (5, 7), (6, 8),
    (7, 9), (8, 10), (1, 2), (0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 6),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class KeypointSet:
    """Which of a job's keypoints are exported.

    Attributes:
        indices: (K,) positions in the stored keypoints.
        names: K names.
        skeleton: Pairs of positions in this set, counted from 0.
        sigmas: (K,) OKS constants, or empty where the vocabulary has none.
    """

    indices: Array
    names: tuple[str, ...]
    skeleton: tuple[tuple[int, int], ...]
    sigmas: tuple[float, ...]

    def take(self, person: Mapping[str, Any]) -> tuple[Array, Array]:
        """(K, 2) positions and (K,) scores of a person; NaN and 0 where it has no pose."""
        if person["keypoints"] is None:
            return np.full((len(self.names), 2), np.nan), np.zeros(len(self.names))
        return person["keypoints"][self.indices], person["keypoint_scores"][self.indices]


def keypoint_set(schema: LabelSchema, subset: Subset) -> KeypointSet:
    """The keypoints of a job's vocabulary that a subset means.

    Raises:
        InputError: The vocabulary does not name them.
    """
    count = next(column.shape[0] for column in schema.columns if column.name == "keypoints")
    stored = tuple(schema.metadata.get("keypoints") or (f"keypoint_{n}" for n in range(count)))
    sigmas = tuple(schema.metadata.get("sigmas") or ())
    if subset == "all":
        links = tuple((int(a), int(b)) for a, b in schema.metadata.get("skeleton") or ())
        return KeypointSet(np.arange(count), stored, links, sigmas)
    if missing := [name for name in BODY17 if name not in stored]:
        raise InputError(
            f"keypoints: body17: the job's {count} keypoints have no {missing[0]!r}; use all"
        )
    indices = np.array([stored.index(name) for name in BODY17])
    chosen = tuple(float(sigmas[index]) for index in indices) if sigmas else ()
    return KeypointSet(indices, BODY17, _BODY17_SKELETON, chosen)


def is_visible(xy: Array, scores: Array, size: tuple[int, int], threshold: float) -> Array:
    """(K,) bool: points that exist, lie in the image and score at least the threshold.

    Args:
        xy: (K, 2) source pixels, NaN where missing.
        scores: (K,).
        size: (height, width) of the image.
        threshold: The least score of a visible point.
    """
    limits = np.array([size[1], size[0]]) - 0.5
    with np.errstate(invalid="ignore"):
        visible: Array = (
            np.isfinite(xy).all(axis=1)
            & (xy >= -0.5).all(axis=1)
            & (xy <= limits).all(axis=1)
            & (scores >= threshold)
        )
    return visible


def rounded(values: ArrayLike, digits: int) -> list[float]:
    """Numbers as short JSON, flat."""
    found: list[float] = np.round(np.asarray(values, np.float64), digits).ravel().tolist()
    return found
