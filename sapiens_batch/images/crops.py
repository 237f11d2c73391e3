"""Crops of images with many persons, cut when they are needed.

A crop takes as much memory as half a photo, so that 200 of them would fill a worker; the photo and
the boxes do not. Cutting is `make_view`, now or later: the pixels are the same. Which images are
treated so is left to the pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sapiens_batch.images.decoded import DecodedImage
from sapiens_batch.images.views import make_view
from sapiens_batch.records import Array, ViewSpec


@dataclass(frozen=True, slots=True)
class Cut:
    """A crop that is still to be made.

    Attributes:
        image: Position of the image in `CropCanvases.images`.
        box: (4,) float32 COCO xywh in source pixels.
    """

    image: int
    box: Array


@dataclass(frozen=True, slots=True)
class CropCanvases:
    """The canvases of a view batch; slicing it gives arrays.

    Attributes:
        spec: What the views are.
        images: The images that crops are still to be cut from.
        ready: (m, height, width, 3) uint8 canvases that are there already.
        entries: For each canvas of the batch its position in `ready`, or how to make it.
    """

    spec: ViewSpec
    images: tuple[DecodedImage, ...]
    ready: Array
    entries: tuple[int | Cut, ...]

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, wanted: slice) -> Array:
        """(n, height, width, 3) uint8 canvases of a range."""
        entries = self.entries[wanted]
        canvases = np.empty((len(entries), self.spec.height, self.spec.width, 3), np.uint8)
        for canvas, entry in zip(canvases, entries, strict=True):
            canvas[...] = self.ready[entry] if isinstance(entry, int) else self._cut(entry)
        return canvases

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """All canvases at once, for readers that want an array."""
        return np.asarray(self[:], dtype)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(n, height, width, 3)."""
        return len(self), self.spec.height, self.spec.width, 3

    def _cut(self, entry: Cut) -> Array:
        return make_view(self.images[entry.image], self.spec, entry.box).canvas
