"""Crops of images with many persons, cut when they are needed.

A crop takes as much memory as half a photo, so that 200 of them would fill a worker; the photo and
the boxes do not. Cutting is `make_view`, now or later: the pixels are the same. Which images are
treated so is left to the pipeline.

While the device works on one batch the next one is cut in a thread: whoever takes a slice will
probably want the one after it, of the same length. If not, that work is wasted and nothing else.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from sapiens_batch.images.views import Viewable, make_view
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


class CropCanvases:
    """The canvases of a view batch; contiguous ranges of it are arrays. Not thread-safe.

    Args:
        spec: What the views are.
        images: The images that crops are still to be cut from.
        ready: (m, height, width, 3) uint8 canvases that are there already.
        entries: For each canvas of the batch its position in `ready`, or how to make it.
    """

    def __init__(
        self,
        spec: ViewSpec,
        images: tuple[Viewable, ...],
        ready: Array,
        entries: tuple[int | Cut, ...],
    ) -> None:
        self.spec = spec
        self.images = images
        self.ready = ready
        self.entries = entries
        self._ahead: _Ahead | None = None

    def __reduce__(self) -> tuple[type[CropCanvases], tuple[Any, ...]]:
        """What crosses to another process: not the thread."""
        return CropCanvases, (self.spec, self.images, self.ready, self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, wanted: slice) -> Array:
        """(n, height, width, 3) uint8 canvases of a contiguous range.

        Raises:
            TypeError: Something else than a slice is asked for.
            ValueError: The slice has a step.
        """
        if not isinstance(wanted, slice):
            raise TypeError(
                f"crops are taken by ranges, not by {type(wanted).__name__} {wanted!r}; take "
                "canvases[start:stop], or np.asarray(canvases) for an array of all"
            )
        start, stop, step = wanted.indices(len(self))
        if step != 1:
            raise ValueError(
                f"crops are taken by contiguous ranges, not in steps of {step}; take "
                "canvases[start:stop] and index that"
            )
        ahead, self._ahead = self._ahead, None
        if ahead is not None and (ahead.start, ahead.stop) == (start, stop):
            canvases = ahead.canvases.result()
        else:
            canvases = self._cut_range(start, stop)
        if start < stop < len(self):
            self._ahead = self._cut_ahead(stop, min(2 * stop - start, len(self)))
        return canvases

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """All canvases at once, for readers that want an array.

        Raises:
            ValueError: No copy is allowed, but crops that are still to be made lie nowhere yet.
        """
        if copy is False:
            raise ValueError("crops are cut into a new array; ask for one with copy=None or True")
        return np.asarray(self[:], dtype)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(n, height, width, 3)."""
        return len(self), self.spec.height, self.spec.width, 3

    def _cut_ahead(self, start: int, stop: int) -> _Ahead:
        # a thread for each batch: one that waits between batches would not survive a fork
        with_thread = ThreadPoolExecutor(1, "crops")
        canvases = with_thread.submit(self._cut_range, start, stop)
        with_thread.shutdown(wait=False)
        return _Ahead(start, stop, canvases)

    def _cut_range(self, start: int, stop: int) -> Array:
        entries = self.entries[start:stop]
        canvases = np.empty((len(entries), self.spec.height, self.spec.width, 3), np.uint8)
        for canvas, entry in zip(canvases, entries, strict=True):
            if isinstance(entry, int):
                canvas[...] = self.ready[entry]
            else:
                make_view(self.images[entry.image], self.spec, entry.box, canvas=canvas)
        return canvases


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A batch that is being cut.

    Attributes:
        start: Position of its first canvas.
        stop: Position after its last one.
        canvases: The canvases, when they are done.
    """

    start: int
    stop: int
    canvases: Future[Array]
