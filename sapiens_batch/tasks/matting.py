"""Matting: what of each pixel belongs to persons.

The foreground is multiplied with alpha already, so that `foreground + (1 - alpha) * background` is
the image in front of another background.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from sapiens_batch.records import Array, ColumnField, ViewBatch, ViewKind
from sapiens_batch.tasks.base import Outputs
from sapiens_batch.tasks.confidence import UNDECIDED_ALPHA, undecided
from sapiens_batch.tasks.dense import MapTask


class MattingTask(MapTask):
    """Foreground and alpha of the stretched image."""

    name = "matting"
    view_kind = ViewKind.STRETCH
    head = "matting"
    can_flip = True
    original_variant = "matting"
    confidence_from = "outputs"
    channels = ("red", "green", "blue", "alpha")
    what = "matting"
    description = "pre-multiplied foreground in red, green and blue, then alpha, from 0 to 1"

    @property
    def columns(self) -> tuple[ColumnField, ...]:
        """The share of undecided pixels, where it is asked for."""
        if not self.is_confidence_asked:
            return ()
        low, high = UNDECIDED_ALPHA
        what = f"share of pixels with alpha between {low} and {high}"
        return (ColumnField("matting_undecided", "float32", (), "", what),)

    def confidence(
        self, labels: Sequence[Tensor], outputs: Outputs, views: ViewBatch
    ) -> dict[str, Array]:
        """Of the finished alpha."""
        del outputs, views
        shares = [float(undecided(label[3])) if label.numel() else float("nan") for label in labels]
        return {"matting_undecided": np.array(shares, np.float32)}

    def finish(self, raw: Tensor) -> Tensor:
        """Cut (4, h, w) values to [0, 1], which resizing leaves by rounding only."""
        return raw.clamp_(0, 1)
