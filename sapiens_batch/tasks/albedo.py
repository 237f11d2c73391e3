"""Albedo: the colour of each surface without light and shadow.

The head's values are cut to [0, 1]; they are red, green and blue as the model was trained on them.
"""

from __future__ import annotations

from torch import Tensor

from sapiens_batch.records import ViewKind
from sapiens_batch.tasks.dense import MapTask


class AlbedoTask(MapTask):
    """Albedo of the letterboxed image."""

    name = "albedo"
    view_kind = ViewKind.LETTERBOX
    head = "albedo"
    can_flip = True
    channels = ("red", "green", "blue")
    what = "albedo"
    description = "albedo, red, green and blue from 0 to 1"

    def finish(self, raw: Tensor) -> Tensor:
        """Cut (3, h, w) values to [0, 1]."""
        return raw.clamp(0, 1)
