"""How far the labels of one sample in two jobs are apart, task by task.

Numbers only; pairing samples is left to `labelset.joined`, drawing to `differences`. Maps of both
jobs are brought to one grid. A measure that does not apply is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from sapiens_batch.images import frames
from sapiens_batch.labelset import SampleLabels
from sapiens_batch.labelset.sample import frame_affine
from sapiens_batch.records import NO_CLASS, Array, Level

# Two boxes that overlap less are two persons.
_MIN_BOX_IOU: Final = 0.5


@dataclass(frozen=True, slots=True)
class Measure:
    """One number about a pair of samples, the panel that shows it, and which numbers are worse."""

    title: str
    unit: str
    kind: str
    worse: Literal["high", "low"]


MEASURES: Final[Mapping[str, Measure]] = {
    "keypoint_px": Measure("Keypoint distance", "px", "pose", "high"),
    "keypoint_relative": Measure("Keypoint distance over person size", "", "pose", "high"),
    "mask_iou": Measure("Mask IoU, mean over classes", "", "seg", "low"),
    "mask_agreement": Measure("Pixels with the same class", "", "seg", "low"),
    "normal_degrees": Measure("Angle between normals", "°", "normal", "high"),
    "depth_relative": Measure("Depth error over depth", "", "pointmap", "high"),
    "depth_m": Measure("Depth error", "m", "pointmap", "high"),
    "embedding_distance": Measure("Cosine distance of embeddings", "", "photo", "high"),
}


def measure_pair(
    first: SampleLabels, second: SampleLabels, *, min_score: float
) -> dict[str, float]:
    """The measures that apply to a pair of labeled samples, by name.

    Keypoints count where both jobs score them higher than `min_score`.
    """
    found: dict[str, float] = {}
    if "pose" in first.schemas and "pose" in second.schemas:
        found |= _pose(first, second, min_score)
    if "embedding" in first.schemas and "embedding" in second.schemas:
        found |= _embedding(first.row.get("embedding"), second.row.get("embedding"))
    for task, compare in _DENSE.items():
        maps = paired_maps(first, second, task)
        if maps is not None:
            found |= compare(*maps)
    return found


def paired_maps(first: SampleLabels, second: SampleLabels, task: str) -> tuple[Array, Array] | None:
    """A task's arrays of both jobs, (..., h, w) on one grid, or None.

    The grid is the first one's frame, or the source's where labels are those of persons, who are
    laid over one another.
    """
    schemas = (first.schemas.get(task), second.schemas.get(task))
    if any(one is None or one.array is None for one in schemas):
        return None
    if any(one is not None and one.level is Level.PERSON for one in schemas):
        # the same picture, which the jobs may have seen at different sizes
        size = (first.row["height"], first.row["width"])
        mine, other = first.to_source(task), second.to_source(task, size=size)
        return None if mine is None or other is None else (mine, other)
    mine, other = first.array(task), second.array(task)
    if mine is None or other is None:
        return None
    to_first = frame_affine(second.row, task).then(frame_affine(first.row, task).inverse())
    field = second.arrays[task].field
    size = (mine.shape[-2], mine.shape[-1])
    if other.shape[-2:] != size or not np.allclose(to_first.as_row(), (1, 1, 0, 0), atol=1e-6):
        other = frames.to_source(
            other,
            to_first,
            size,
            interpolation=frames.interpolation_of(field),
            fill_value=field.fill_value,
        )
    return mine, other


def matched_persons(first: SampleLabels, second: SampleLabels) -> list[tuple[int, int]]:
    """Positions of persons that both jobs have, best overlap first; each is matched once."""
    if not first.persons or not second.persons:
        return []
    boxes = [np.array([one["bbox"] for one in sample.persons]) for sample in (first, second)]
    overlap = box_iou(*boxes)
    pairs: list[tuple[int, int]] = []
    while overlap.max() >= _MIN_BOX_IOU:
        row, column = (int(place) for place in np.unravel_index(overlap.argmax(), overlap.shape))
        pairs.append((row, column))
        overlap[row], overlap[:, column] = -1, -1
    return pairs


def box_iou(first: Array, second: Array) -> Array:
    """(n, m) intersection over union of (n, 4) and (m, 4) boxes, xywh."""
    a, b = first[:, None].astype(np.float64), second[None].astype(np.float64)
    low = np.maximum(a[..., :2], b[..., :2])
    high = np.minimum(a[..., :2] + a[..., 2:], b[..., :2] + b[..., 2:])
    shared = np.prod(np.maximum(0, high - low), axis=-1)
    union = np.prod(a[..., 2:], axis=-1) + np.prod(b[..., 2:], axis=-1) - shared
    iou: Array = shared / np.maximum(union, 1e-9)
    return iou


def angles(first: Array, second: Array) -> Array:
    """(h, w) degrees between (3, h, w) unit normals; NaN where one is missing."""
    dots = (first.astype(np.float32) * second.astype(np.float32)).sum(axis=0)
    degrees: Array = np.degrees(np.arccos(np.clip(dots, -1, 1)))
    return degrees


def _pose(first: SampleLabels, second: SampleLabels, min_score: float) -> dict[str, float]:
    distances, relative = [], []
    for mine, other in matched_persons(first, second):
        a, b = first.persons[mine], second.persons[other]
        if a.get("keypoints") is None or b.get("keypoints") is None:
            continue
        if a["keypoints"].shape != b["keypoints"].shape:
            continue
        away = np.linalg.norm(a["keypoints"] - b["keypoints"], axis=1)
        both = np.minimum(a["keypoint_scores"], b["keypoint_scores"]) > min_score
        away = away[both & np.isfinite(away)]
        if away.size:
            distances.append(float(away.mean()))
            relative.append(float(away.mean()) / float(np.sqrt(a["bbox"][2] * a["bbox"][3])))
    if not distances:
        return {}
    return {
        "keypoint_px": float(np.mean(distances)),
        "keypoint_relative": float(np.mean(relative)),
    }


def _embedding(first: Array | None, second: Array | None) -> dict[str, float]:
    if first is None or second is None or first.shape != second.shape:
        return {}
    lengths = float(np.linalg.norm(first) * np.linalg.norm(second))
    # rounding must not make two equal vectors nearer than equal
    distance = max(0.0, 1 - float(first @ second) / lengths) if lengths else None
    return {} if distance is None else {"embedding_distance": distance}


def _masks(first: Array, second: Array) -> dict[str, float]:
    known = (first != NO_CLASS) & (second != NO_CLASS)
    if not known.any():
        return {}
    first, second = first[known], second[known]
    classes = np.union1d(np.unique(first), np.unique(second))
    ious = [
        float(((first == one) & (second == one)).sum() / ((first == one) | (second == one)).sum())
        for one in classes
    ]
    return {"mask_iou": float(np.mean(ious)), "mask_agreement": float((first == second).mean())}


def _normals(first: Array, second: Array) -> dict[str, float]:
    degrees = angles(first, second)
    finite = np.isfinite(degrees)
    return {"normal_degrees": float(degrees[finite].mean())} if finite.any() else {}


def _depths(first: Array, second: Array) -> dict[str, float]:
    a, b = (one[2] if one.ndim == 3 else one for one in (first, second))
    a, b = a.astype(np.float32), b.astype(np.float32)
    usable = np.isfinite(a) & np.isfinite(b) & (a > 0)
    if not usable.any():
        return {}
    error = np.abs(a - b)[usable]
    return {
        "depth_m": float(error.mean()),
        "depth_relative": float((error / a[usable]).mean()),
    }


_DENSE: Final[Mapping[str, Callable[[Array, Array], dict[str, float]]]] = {
    "seg": _masks,
    "normal": _normals,
    "pointmap": _depths,
}
