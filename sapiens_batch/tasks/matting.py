"""Matting: what of each pixel belongs to persons.

The foreground is multiplied with alpha already, so that `foreground + (1 - alpha) * background` is
the image in front of another background.
"""

from __future__ import annotations

from torch import Tensor

from sapiens_batch.records import ViewKind
from sapiens_batch.tasks.dense import MapTask


class MattingTask(MapTask):
    """Foreground and alpha of the stretched image."""

    name = "matting"
    view_kind = ViewKind.STRETCH
    head = "matting"
    can_flip = True
    original_variant = "matting"
    channels = ("red", "green", "blue", "alpha")
    what = "matting"
    description = "pre-multiplied foreground in red, green and blue, then alpha, from 0 to 1"

    def finish(self, raw: Tensor) -> Tensor:
        """Cut (4, h, w) values to [0, 1], which resizing leaves by rounding only."""
        return raw.clamp_(0, 1)
