"""The body part or garment class of every pixel.

The class is chosen after logits of the stretched view are interpolated on the undistorted frame;
`masks` does so without resizing the 90 MB of logits of an image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from colorsys import hsv_to_rgb
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from sapiens_batch.errors import WeightsError
from sapiens_batch.models.weights import Checkpoint
from sapiens_batch.records import (
    NO_CLASS,
    Array,
    ArrayField,
    ColumnField,
    TaskLabels,
    ViewBatch,
    ViewKind,
)
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.tasks.base import Outputs, Task
from sapiens_batch.tasks.confidence import class_confidence
from sapiens_batch.tasks.dense import fill_rows, stretch_frames, to_host, view_frames
from sapiens_batch.tasks.finite import non_finite_problems
from sapiens_batch.tasks.masks import resized_mask

_WINNING = "probability of the class that wins"
_CONFIDENCE: Final = {
    "seg_class_confidence": (
        "probability",
        f"mean {_WINNING}, where each class does; NaN: nowhere",
    ),
    "seg_class_confidence_p10": ("probability", "10th percentile of the same"),
    "seg_confidence": ("probability", f"mean {_WINNING}"),
    "seg_entropy": ("nat", "mean entropy of the classes' probabilities"),
    "seg_unsure": ("", f"share of pixels where the {_WINNING} is below 0.5"),
}
"""Unit and meaning of the columns of confidence, in the order of `ClassConfidence`."""
_OF_CLASSES: Final = ("seg_class_confidence", "seg_class_confidence_p10")


def drawn_palette(count: int) -> list[list[int]]:
    """Colours for classes that nobody gave any: the first is grey, the others are far apart."""
    turn = (5**0.5 - 1) / 2  # of a circle: any number of successive hues is spread evenly
    shades = [(turn * number % 1, 0.55 + 0.4 * (number % 2)) for number in range(count - 1)]
    coloured = [hsv_to_rgb(hue, 0.75, value) for hue, value in shades]
    return [[50, 50, 50], *([round(255 * one) for one in rgb] for rgb in coloured)]


class SegTask(Task):
    """Class masks of the stretched image."""

    name = "seg"
    view_kind = ViewKind.STRETCH
    head = "seg"
    can_flip = True
    original_variant = "seg"
    confidence_from = "outputs"

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
        areas = ColumnField("seg_class_pixels", "int32", shape, "px", "frame pixels per class")
        if not self.is_confidence_asked:
            return (areas,)
        shapes = {name: shape if name in _OF_CLASSES else () for name in _CONFIDENCE}
        return (
            areas,
            *(
                ColumnField(name, "float32", shapes[name], unit, what)
                for name, (unit, what) in _CONFIDENCE.items()
            ),
        )

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
            "frame": self.spec.frame,
            "palette_rgb": known.facts.get("palette_rgb") or drawn_palette(self.num_classes),
            "flip_pairs": known.flip_pairs and [list(pair) for pair in known.flip_pairs],
            "map_to_v2": known.facts.get("map_to_v2"),
        }

    def decode(self, outputs: Outputs, views: ViewBatch) -> TaskLabels:
        """Resize (n, classes, h, w) logits to the frames and take the highest."""
        on_view = self.spec.frame == "view"
        frames = view_frames(views) if on_view else stretch_frames(views)
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
        columns = {"seg_class_pixels": areas}
        if self.is_confidence_asked:
            columns |= self._confidence(outputs.maps, finite)
        problems = non_finite_problems(finite, "class logits")
        return TaskLabels(columns, to_host(rows), frames, problems)

    def _confidence(self, logits: Tensor, finite: Sequence[bool]) -> dict[str, Array]:
        found = [class_confidence(one) for one in logits]
        columns = {
            name: to_host(torch.stack(values))
            for name, values in zip(_CONFIDENCE, zip(*found, strict=True), strict=True)
        }
        for values in columns.values():
            values[~np.array(finite, bool)] = np.nan
        return columns

    def unmirrored(self, maps: Tensor) -> Tensor:
        """Mirror back and swap the logits of left and right classes."""
        return maps.flip(-1)[:, self._vocabulary.mirrored]
