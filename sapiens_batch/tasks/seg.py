"""The body part or garment class of every pixel.

Logits of the stretched view are resized to the undistorted frame before the class is chosen, image
by image, because the logits of one image alone take 90 MB.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (the name that torch's own documentation uses)

from sapiens_batch.errors import WeightsError
from sapiens_batch.job.spec import TaskSpec
from sapiens_batch.models.weights import Checkpoint
from sapiens_batch.records import (
    ArrayField,
    ColumnField,
    Frame,
    Level,
    TaskLabels,
    ViewBatch,
    ViewKind,
)
from sapiens_batch.tasks.base import Outputs, Task
from sapiens_batch.tasks.dense import (
    all_finite,
    fill_rows,
    non_finite_problems,
    stretch_frames,
    to_host,
)
from sapiens_batch.tasks.vocabulary import class_vocabulary

NO_CLASS = 255
"""Stands where no label is; also the class that training ignored."""


class SegTask(Task):
    """Class masks of the stretched image."""

    name = "seg"
    level = Level.IMAGE
    view_kind = ViewKind.STRETCH
    head = "seg"
    original_variant = "seg"

    def __init__(self, spec: TaskSpec, checkpoint: Checkpoint) -> None:
        super().__init__(spec, checkpoint)
        if self.num_classes >= NO_CLASS:
            raise WeightsError(
                f"tasks.seg.checkpoint: {checkpoint.id} has {self.num_classes} classes, masks are "
                f"stored in one byte and can tell {NO_CLASS - 1} apart"
            )

    @property
    def num_classes(self) -> int:
        """Classes of the checkpoint's head."""
        head = self.checkpoint.config.head
        assert head is not None, "checked on construction"
        return head.out_channels

    @property
    def columns(self) -> tuple[ColumnField, ...]:
        """Area of each class."""
        shape = (self.num_classes,)
        return (ColumnField("seg_class_pixels", "int32", shape, "px", "frame pixels per class"),)

    @property
    def array(self) -> ArrayField:
        """The mask."""
        return ArrayField(
            row_shape=self.checkpoint.config.image_size,
            dtype="uint8",
            fill_value=NO_CLASS,
            dimension_names=("y", "x"),
            codec="zstd",
            description="class of each frame pixel",
        )

    @property
    def vocabulary(self) -> Mapping[str, Any]:
        """Class names and colours."""
        known = class_vocabulary(self.num_classes)
        if known is None:
            return {"classes": None}
        return {
            "classes": known["names"],
            "palette_rgb": known["palette_rgb"],
            "flip_pairs": known["flip_pairs"],
        }

    def decode(self, outputs: Outputs, views: ViewBatch) -> TaskLabels:
        """Resize (n, classes, h, w) logits to the frames and take the highest."""
        frames = stretch_frames(views)
        finite = all_finite(outputs.maps)
        masks = [
            _mask(logits, frame) if good else logits.new_empty((0, 0))
            for logits, frame, good in zip(outputs.maps, frames, finite, strict=True)
        ]
        rows = fill_rows(masks, self.array, outputs.maps.device)
        counts = [
            torch.bincount(mask.flatten().int(), minlength=self.num_classes) for mask in masks
        ]
        areas = to_host(torch.stack(counts)).astype(np.int32)
        problems = non_finite_problems(finite, "class logits")
        return TaskLabels({"seg_class_pixels": areas}, to_host(rows), frames, problems)


def _mask(logits: Tensor, frame: Frame) -> Tensor:
    """Class of each frame pixel, uint8, from (classes, h, w) logits."""
    size = (frame.height, frame.width)
    resized = F.interpolate(logits[None], size=size, mode="bilinear", align_corners=False)
    return resized[0].argmax(0).to(torch.uint8)
