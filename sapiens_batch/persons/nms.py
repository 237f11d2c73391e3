"""Greedy suppression of boxes that overlap a better one, as the published demo does it.

Which boxes are candidates is left to the detectors. Lengths count pixels, last minus first plus
one, in areas and overlaps alike: for small boxes that is not the same as continuous area.
"""

from __future__ import annotations

import numpy as np

from sapiens_batch.records import Array


def suppress(boxes: Array, scores: Array, *, max_iou: float) -> Array:
    """Keep the best box of each heap of overlapping ones.

    Args:
        boxes: (P, 4) first column, first row, last column, last row, px.
        scores: (P,), finite.
        max_iou: Boxes that overlap a kept one by more than this are dropped.

    Returns:
        Positions of the kept boxes, best score first; equal scores keep their order.
    """
    boxes = boxes.astype(np.float64)
    areas = (boxes[:, 2:] - boxes[:, :2] + 1).prod(axis=1)
    waiting = np.argsort(-scores, kind="stable")
    kept = []
    while waiting.size:
        best, waiting = waiting[0], waiting[1:]
        kept.append(best)
        first = np.maximum(boxes[best, :2], boxes[waiting, :2])
        last = np.minimum(boxes[best, 2:], boxes[waiting, 2:])
        overlap = np.maximum(0.0, last - first + 1).prod(axis=1)
        iou = overlap / (areas[best] + areas[waiting] - overlap)
        waiting = waiting[iou <= max_iou]
    return np.array(kept, np.intp)
