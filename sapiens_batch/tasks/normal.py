"""Surface normals: a unit vector per pixel.

x points right, y up, z towards the viewer. Vectors are brought to unit length on the frame that is
stored; the Sapiens2 references normalise before they resize, which shortens vectors at edges.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sapiens_batch.records import ViewKind
from sapiens_batch.tasks.confidence import angles
from sapiens_batch.tasks.dense import MapTask

MIN_LENGTH = 1e-8
"""A shorter raw vector has no direction; the reference code divides by this instead."""


class NormalTask(MapTask):
    """Unit normals of the letterboxed image."""

    name = "normal"
    view_kind = ViewKind.LETTERBOX
    head = "normal"
    can_flip = True
    channels = ("x", "y", "z")
    what = "normals"
    apart_unit = "degrees"
    description = "unit normal: x right, y up, z towards the viewer"

    def finish(self, raw: Tensor) -> Tensor:
        """Unit vectors of (3, h, w) raw ones."""
        return unit_vectors(raw)

    def apart(self, some: Tensor, others: Tensor) -> Tensor:
        """Degrees between directions."""
        return angles(some, others)

    def unmirrored(self, maps: Tensor) -> Tensor:
        """Mirror back; what pointed right in the mirror points left."""
        back = maps.flip(-1)
        back[:, 0].neg_()
        return back


def unit_vectors(raw: Tensor) -> Tensor:
    """(3, h, w) vectors at unit length; NaN where a vector has no direction."""
    length = raw.square().sum(0, keepdim=True).sqrt()  # ten times faster than `norm` on a CPU
    return torch.where(length > MIN_LENGTH, raw / length, torch.nan)
