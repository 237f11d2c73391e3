"""The views of a chunk, gathered image by image.

What a view shows is left to `images`. Images with many persons keep their pixels and boxes instead
of their crops, so that the memory of a chunk is bounded by its images, however many persons they
show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from sapiens_batch.images.crops import CropCanvases, Cut
from sapiens_batch.images.decoded import DecodedImage
from sapiens_batch.images.views import make_view, map_view
from sapiens_batch.records import Affine, Array, Level, Region, View, ViewBatch, ViewSpec

# Crops of up to so many persons are cut at once, where there is CPU to spare; the crops of a crowd
# are cut beside the accelerator at 9 ms each, a batch ahead of it.
EAGER_PERSONS = 8


class ViewCollector:
    """Gathers views by spec, in sample then person order.

    Args:
        specs: The views to make.
    """

    def __init__(self, specs: Sequence[ViewSpec]) -> None:
        self._views = {spec: _Views(spec) for spec in specs}

    def add(self, image: DecodedImage, position: int, boxes: Array, owners: Sequence[int]) -> None:
        """Add the views of one image.

        Args:
            image: The image.
            position: Of the sample in the chunk.
            boxes: (P, 4) usable boxes of its persons.
            owners: P positions of those persons in the chunk.
        """
        for spec, views in self._views.items():
            if spec.owner is Level.IMAGE:
                views.add_ready(make_view(image, spec), image, position)
            elif _is_crowd(image, len(boxes), spec):
                views.add_cuts(image, boxes, owners)
            else:
                for box, owner in zip(boxes, owners, strict=True):
                    views.add_ready(make_view(image, spec, box), image, owner)

    def batches(self) -> Mapping[ViewSpec, ViewBatch]:
        """The views so far."""
        return {spec: views.batch() for spec, views in self._views.items()}


def _is_crowd(image: DecodedImage, num_persons: int, spec: ViewSpec) -> bool:
    crops_bytes = num_persons * spec.height * spec.width * 3
    return num_persons > EAGER_PERSONS and crops_bytes > image.pixels.nbytes


class _Views:
    def __init__(self, spec: ViewSpec) -> None:
        self._spec = spec
        self._ready: list[Array] = []
        self._images: list[DecodedImage] = []
        self._entries: list[int | Cut] = []
        self._maps: list[tuple[Affine, Region]] = []
        self._sizes: list[tuple[int, int]] = []
        self._owners: list[int] = []

    def add_ready(self, view: View, image: DecodedImage, owner: int) -> None:
        self._add(len(self._ready), view.to_source, view.content, image, owner)
        self._ready.append(view.canvas)

    def add_cuts(self, image: DecodedImage, boxes: Array, owners: Sequence[int]) -> None:
        for box, owner in zip(boxes, owners, strict=True):
            to_source, content = map_view(image.size, image.reduction, self._spec, box)
            self._add(Cut(len(self._images), box), to_source, content, image, owner)
        # the decoder uses the memory of an image again
        self._images.append(replace(image, pixels=image.pixels.copy()))

    def _add(
        self, entry: int | Cut, to_source: Affine, content: Region, image: DecodedImage, owner: int
    ) -> None:
        self._entries.append(entry)
        self._maps.append((to_source, content))
        self._sizes.append(image.size)
        self._owners.append(owner)

    def batch(self) -> ViewBatch:
        spec = self._spec
        empty = np.empty((0, spec.height, spec.width, 3), np.uint8)
        canvases = np.stack(self._ready) if self._ready else empty
        if self._images:
            entries = tuple(self._entries)
            cut_later = CropCanvases(spec, tuple(self._images), canvases, entries)
            canvases = cast(Array, cut_later)  # stands in for an array wherever it is sliced
        return ViewBatch(
            spec,
            canvases,
            tuple(to_source for to_source, _ in self._maps),
            tuple(content for _, content in self._maps),
            tuple(self._sizes),
            tuple(self._owners),
        )
