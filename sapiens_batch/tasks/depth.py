"""Relative depth, from Sapiens v1.

Numbers have no unit and no zero: they order the pixels of one image, as the model gives them.
Metric geometry is what `pointmap` of Sapiens2 is for.
"""

from __future__ import annotations

from torch import Tensor

from sapiens_batch.records import ViewKind
from sapiens_batch.tasks.dense import MapTask


class DepthTask(MapTask):
    """Relative depth of the stretched image."""

    name = "depth"
    view_kind = ViewKind.STRETCH
    head = "depth"
    can_flip = True
    channels = ("depth",)
    what = "depth"
    description = "relative depth as the model gives it, comparable within an image only"

    def finish(self, raw: Tensor) -> Tensor:
        """(1, h, w) depth as it is."""
        return raw
