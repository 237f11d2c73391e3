"""Metric points: where in the camera's frame each pixel's surface lies.

x points right, y down, z forward, in metres. The head predicts points for a camera with a canonical
focal length, and the scale that leads from there to the camera that took the image.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor

from sapiens_batch.errors import WeightsError
from sapiens_batch.models.heads import HeadOutput
from sapiens_batch.models.weights import Checkpoint
from sapiens_batch.records import (
    Array,
    ArrayField,
    ColumnField,
    Problem,
    TaskLabels,
    ViewBatch,
    ViewKind,
)
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.tasks.base import Outputs, Task
from sapiens_batch.tasks.confidence import distances, sampled
from sapiens_batch.tasks.dense import (
    disagreement_column,
    disagreement_values,
    fill_rows,
    to_frames,
    to_host,
)
from sapiens_batch.tasks.finite import non_finite_problems

CANONICAL_FOCAL_PER_WIDTH = 1.0
"""The canonical camera's focal length over the width of the model input: 768 px of 768."""

SCALES: Final = (0.01, 100.0)
"""A focal length of 100 and of 0.01 image widths, fields of view of half a degree and of 179."""
NO_SCALE: Final = "label.scale"
"""Reason of a problem: the scale of a pointmap is not that of a camera."""


class PointmapTask(Task):
    """Metric points of the letterboxed image."""

    name = "pointmap"
    view_kind = ViewKind.LETTERBOX
    can_pad = True
    head = "pointmap"
    can_flip = True
    confidence_from = "flip_test"

    def __init__(self, spec: TaskSpec, checkpoint: Checkpoint) -> None:
        super().__init__(spec, checkpoint)
        head = checkpoint.config.head
        if head is not None and not head.scale_hidden:
            raise WeightsError(
                f"tasks.pointmap.checkpoint: {checkpoint.id} lacks the scale branch "
                "(decode_head.scale_*), without which points are not metric"
            )

    @property
    def columns(self) -> tuple[ColumnField, ...]:
        """Scale and the focal length that it implies."""
        return (
            ColumnField("pointmap_scale", "float32", (), "", "canonical over actual focal length"),
            ColumnField(
                "pointmap_focal", "float32", (), "px", "implied focal length, source pixels"
            ),
            *(disagreement_column(self, "m") if self.is_confidence_asked else ()),
        )

    @property
    def array(self) -> ArrayField:
        """The points."""
        return ArrayField(
            row_shape=(3, *self.checkpoint.config.image_size),
            dtype=self.dtype,
            fill_value=float("nan"),
            dimension_names=("channel", "y", "x"),
            codec="blosc",
            unit="m",
            description="point in the camera's frame: x right, y down, z forward",
        )

    def decode(self, outputs: Outputs, views: ViewBatch) -> TaskLabels:
        """Bring the content of (n, 3, h, w) maps to metres."""
        scale = _scale(outputs.head)  # (n,)
        metric = outputs.maps / scale[:, None, None, None]
        # narrowing first: a point beyond the range of float16 is infinite too
        metric = metric.to(getattr(torch, self.dtype))
        contents, frames = to_frames(metric, views)
        finite = [bool(content.isfinite().all()) for content in contents]
        sensible = _sensible(scale)
        usable = [good and sane for good, sane in zip(finite, sensible, strict=True)]
        points = [
            content if good else content[:, :0, :0]
            for content, good in zip(contents, usable, strict=True)
        ]
        rows = fill_rows(points, self.array, metric.device)
        columns = _camera(np.where(usable, to_host(scale), np.nan), views)
        if self.is_confidence_asked:
            columns |= disagreement_values(self, outputs, views, usable)
        problems = tuple(
            _no_scale(one) if good and not sane else problem
            for problem, good, sane, one in zip(
                non_finite_problems(finite, "metric points"),
                [bool(value) for value in scale.isfinite()],
                sensible,
                scale.tolist(),
                strict=True,
            )
        )
        return TaskLabels(columns, to_host(rows), frames, problems)

    def disagreement(self, output: HeadOutput, mirrored: HeadOutput) -> Tensor:
        """Metres between the points of each pixel."""
        views = (
            (sampled(output.maps), output.scale),
            (
                sampled(self.unmirrored(mirrored.maps)),
                mirrored.scale,
            ),
        )
        some, others = (
            maps / (1.0 if scale is None else scale[:, :, None, None]) for maps, scale in views
        )
        return distances(some, others)

    def unmirrored(self, maps: Tensor) -> Tensor:
        """Mirror back; what lay to the right in the mirror lies to the left."""
        back = maps.flip(-1)
        back[:, 0].neg_()
        return back


def _sensible(scale: Tensor) -> list[bool]:
    """Whether each of (n,) scales is that of a camera."""
    low, high = SCALES
    sensible: list[bool] = ((scale >= low) & (scale <= high)).tolist()
    return sensible


def _no_scale(scale: float) -> Problem:
    return Problem(
        NO_SCALE,
        f"the model gave a scale of {scale:.4g}, which no camera has ({SCALES[0]} to {SCALES[1]}): "
        "the label is left out",
    )


def _scale(head: HeadOutput | None) -> Tensor:
    assert head is not None, "the labeler runs the head of a task that has one"
    assert head.scale is not None, "checked on construction"
    return head.scale[:, 0]


def _camera(scale: Array, views: ViewBatch) -> dict[str, Array]:
    """Columns from (n,) scales: the focal length is the canonical one over the scale."""
    canonical = CANONICAL_FOCAL_PER_WIDTH * views.spec.width
    source_per_view = np.array([affine.scale_x for affine in views.to_source])
    with np.errstate(divide="ignore"):
        focal = canonical / scale * source_per_view
    return {
        "pointmap_scale": scale.astype(np.float32),
        "pointmap_focal": focal.astype(np.float32),
    }
