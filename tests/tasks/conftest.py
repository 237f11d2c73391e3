"""Views without pixels, for decoding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from sapiens_batch.images.geometry import crop_map, letterbox, stretch_map
from sapiens_batch.records import Affine, Region, ViewBatch, ViewKind, ViewSpec

torch.set_num_threads(1)

MakeViews = Callable[[ViewSpec, list[tuple[int, int]]], ViewBatch]


def _place(spec: ViewSpec, size: tuple[int, int]) -> tuple[Region, Affine]:
    view = (spec.height, spec.width)
    if spec.kind is ViewKind.LETTERBOX:
        return letterbox(size, view)
    whole = Region(0, 0, *view)
    if spec.kind is ViewKind.STRETCH:
        return whole, stretch_map(size, view)
    return whole, crop_map((5.0, 7.0, size[1] / 2, size[0] / 2), view)


@pytest.fixture
def make_views() -> MakeViews:
    """Views of a spec for images of given (height, width), with noise for pixels."""

    def make(spec: ViewSpec, sizes: list[tuple[int, int]]) -> ViewBatch:
        placed = [_place(spec, size) for size in sizes]
        noise = np.random.default_rng(0)
        shape = (len(sizes), spec.height, spec.width, 3)
        return ViewBatch(
            spec,
            noise.integers(0, 256, shape, dtype=spec.canvas_dtype),
            tuple(affine for _, affine in placed),
            tuple(region for region, _ in placed),
            tuple(sizes),
            tuple(range(len(sizes))),
        )

    return make
