"""The body part or garment class of every pixel.

The class is chosen after logits of the stretched view are interpolated on the undistorted frame;
`masks` does so without resizing the 90 MB of logits of an image.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sapiens_batch.errors import WeightsError
from sapiens_batch.models.weights import Checkpoint
from sapiens_batch.records import NO_CLASS, ArrayField, ColumnField, TaskLabels, ViewBatch, ViewKind
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.tasks.base import Outputs, Task
from sapiens_batch.tasks.dense import fill_rows, stretch_frames, to_host
from sapiens_batch.tasks.finite import non_finite_problems
from sapiens_batch.tasks.masks import resized_mask


class SegTask(Task):
    """Class masks of the stretched image."""

    name = "seg"
    view_kind = ViewKind.STRETCH
    head = "seg"
    can_flip = True
    original_variant = "seg"

    def __init__(self, spec: TaskSpec, checkpoint: Checkpoint) -> None:
        super().__init__(spec, checkpoint)
        if self.num_classes >= NO_CLASS:
            raise WeightsError(
                f"tasks.seg.checkpoint: {checkpoint.id} has {self.num_classes} classes, masks are "
                f"stored in one byte and can tell {NO_CLASS - 1} apart"
            )
        self._vocabulary = self.named("classes", self.num_classes)

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
        known = self._vocabulary
        return {
            "vocabulary": known.source,
            "classes": list(known.names),
            "palette_rgb": known.facts.get("palette_rgb"),
            "flip_pairs": known.flip_pairs and [list(pair) for pair in known.flip_pairs],
            "map_to_v2": known.facts.get("map_to_v2"),
        }

    def decode(self, outputs: Outputs, views: ViewBatch) -> TaskLabels:
        """Resize (n, classes, h, w) logits to the frames and take the highest."""
        frames = stretch_frames(views)
        found = [
            resized_mask(logits, (frame.height, frame.width))
            for logits, frame in zip(outputs.maps, frames, strict=True)
        ]
        finite = [mask is not None for mask in found]
        none = torch.empty(0, 0, dtype=torch.uint8, device=outputs.maps.device)
        masks = [none if mask is None else mask for mask in found]
        rows = fill_rows(masks, self.array, outputs.maps.device)
        counts = [torch.bincount(mask.flatten(), minlength=self.num_classes) for mask in masks]
        areas = to_host(torch.stack(counts)).astype(np.int32)
        problems = non_finite_problems(finite, "class logits")
        return TaskLabels({"seg_class_pixels": areas}, to_host(rows), frames, problems)

    def unmirrored(self, maps: Tensor) -> Tensor:
        """Mirror back and swap the logits of left and right classes."""
        return maps.flip(-1)[:, self._vocabulary.mirrored]
