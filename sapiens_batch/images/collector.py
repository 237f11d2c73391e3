"""The views of some images, gathered image by image.

What a view shows is left to `views`. Images with many persons keep their pixels and boxes instead
of their crops, so that memory is bounded by the images, however many persons they show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sapiens_batch.images.crops import CropCanvases, Cut
from sapiens_batch.images.views import Source, Viewable, make_view, map_view
from sapiens_batch.records import Affine, Array, Canvases, Level, Region, ViewBatch, ViewSpec

# Crops of up to so many persons are cut at once, where there is CPU to spare; the crops of a crowd
# are cut beside the accelerator at 9 ms each, a batch ahead of it.
EAGER_PERSONS = 8


class ViewCollector:
    """Gathers views by spec, in image then person order.

    Args:
        specs: The views to make.
        num_images: How many images there will be.
    """

    def __init__(self, specs: Sequence[ViewSpec], num_images: int) -> None:
        self._views = {spec: _Views(spec, num_images) for spec in specs}

    def add(self, image: Viewable, position: int, boxes: Array, owners: Sequence[int]) -> None:
        """Add the views of one image, whose memory may be used again afterwards.

        Args:
            image: The image.
            position: Of the image: the owner of views of images.
            boxes: (P, 4) usable boxes of its persons.
            owners: P positions of those persons: the owners of their views.
        """
        source = Source.of(image)
        for spec, views in self._views.items():
            if spec.owner is Level.IMAGE:
                views.add(source, None, position)
            elif _is_crowd(source, len(boxes), spec):
                views.add_later(source, boxes, owners)
            else:
                for box, owner in zip(boxes, owners, strict=True):
                    views.add(source, box, owner)

    def batches(self) -> Mapping[ViewSpec, ViewBatch]:
        """The views so far."""
        return {spec: views.batch() for spec, views in self._views.items()}


def _is_crowd(source: Source, num_persons: int, spec: ViewSpec) -> bool:
    crops_bytes = num_persons * spec.height * spec.width * 3
    return num_persons > EAGER_PERSONS and crops_bytes > source.pixels.nbytes


class _Views:
    def __init__(self, spec: ViewSpec, num_expected: int) -> None:
        self._spec = spec
        # views are made in their place; memory of places that stay empty is never touched
        self._canvases = self._places(num_expected)
        self._num_ready = 0
        self._images: list[Source] = []
        self._entries: list[int | Cut] = []
        self._to_source: list[Affine] = []
        self._content: list[Region] = []
        self._sizes: list[tuple[int, int]] = []
        self._owners: list[int] = []

    def add(self, source: Source, box: Array | None, owner: int) -> None:
        """Make a view now."""
        if self._num_ready == len(self._canvases):
            more = self._places(2 * self._num_ready + 1)
            more[: self._num_ready] = self._canvases
            self._canvases = more
        view = make_view(source, self._spec, box, canvas=self._canvases[self._num_ready])
        self._append(self._num_ready, view.to_source, view.content, source, owner)
        self._num_ready += 1

    def add_later(self, source: Source, boxes: Array, owners: Sequence[int]) -> None:
        """Keep what the views of some persons are made from."""
        for box, owner in zip(boxes, owners, strict=True):
            to_source, content = map_view(source.size, source.reduction, self._spec, box)
            self._append(Cut(len(self._images), box), to_source, content, source, owner)
        self._images.append(Source(source.pixels.copy(), source.size, source.reduction))

    def batch(self) -> ViewBatch:
        canvases: Canvases = self._canvases[: self._num_ready]
        if self._images:
            images, entries = tuple(self._images), tuple(self._entries)
            canvases = CropCanvases(self._spec, images, self._canvases[: self._num_ready], entries)
        return ViewBatch(
            self._spec,
            canvases,
            tuple(self._to_source),
            tuple(self._content),
            tuple(self._sizes),
            tuple(self._owners),
        )

    def _places(self, count: int) -> Array:
        return np.empty((count, self._spec.height, self._spec.width, 3), np.uint8)

    def _append(
        self, entry: int | Cut, to_source: Affine, content: Region, source: Source, owner: int
    ) -> None:
        self._entries.append(entry)
        self._to_source.append(to_source)
        self._content.append(content)
        self._sizes.append(source.size)
        self._owners.append(owner)
