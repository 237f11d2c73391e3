"""Surface normals: a unit vector per pixel.

x points right, y up, z towards the viewer. Vectors are brought to unit length on the frame that is
stored; the reference code normalises before it resizes, which shortens vectors at edges.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sapiens_batch.records import ArrayField, ColumnField, Level, TaskLabels, ViewBatch, ViewKind
from sapiens_batch.tasks.base import Outputs, Task
from sapiens_batch.tasks.dense import (
    all_finite,
    fill_rows,
    letterbox_content,
    letterbox_frames,
    non_finite_problems,
    to_host,
)

MIN_LENGTH = 1e-8
"""A shorter raw vector has no direction; the reference code divides by this instead."""


class NormalTask(Task):
    """Unit normals of the letterboxed image."""

    name = "normal"
    level = Level.IMAGE
    view_kind = ViewKind.LETTERBOX
    head = "normal"

    @property
    def columns(self) -> tuple[ColumnField, ...]:
        """None: everything is in the array."""
        return ()

    @property
    def array(self) -> ArrayField:
        """The normals."""
        return ArrayField(
            row_shape=(3, *self.checkpoint.config.image_size),
            dtype=self.spec.dtype,
            fill_value=float("nan"),
            dimension_names=("channel", "y", "x"),
            codec="blosc",
            description="unit normal: x right, y up, z towards the viewer",
        )

    def decode(self, outputs: Outputs, views: ViewBatch) -> TaskLabels:
        """Normalise the content of (n, 3, h, w) maps."""
        finite = all_finite(outputs.maps)
        contents = letterbox_content(outputs.maps, views)
        normals = [
            unit_vectors(content) if good else content[:, :0, :0]
            for content, good in zip(contents, finite, strict=True)
        ]
        rows = fill_rows(normals, self.array, outputs.maps.device)
        problems = non_finite_problems(finite, "normals")
        return TaskLabels({}, to_host(rows), letterbox_frames(views), problems)


def unit_vectors(raw: Tensor) -> Tensor:
    """(3, h, w) vectors at unit length; NaN where a vector has no direction."""
    length = raw.norm(dim=0, keepdim=True)
    return torch.where(length > MIN_LENGTH, raw / length, torch.nan)
