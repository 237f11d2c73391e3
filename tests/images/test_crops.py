"""Crops that are cut when they are asked for."""

from __future__ import annotations

import numpy as np

from sapiens_batch.images.crops import CropCanvases, Cut
from sapiens_batch.images.decoded import DecodedImage
from sapiens_batch.images.views import make_view
from sapiens_batch.records import ViewKind, ViewSpec

SPEC = ViewSpec(ViewKind.CROP, 16, 12)


def canvases() -> CropCanvases:
    pixels = np.random.default_rng(0).integers(0, 255, (40, 50, 3), np.uint8)
    image = DecodedImage(pixels, (40, 50), 1, 1, "PNG", "pillow")
    ready = np.stack([np.full((16, 12, 3), level, np.uint8) for level in (1, 2)])
    box = np.array([5, 6, 20, 25], np.float32)
    return CropCanvases(SPEC, (image,), ready, (1, Cut(0, box), 0))


def test_a_slice_gives_ready_and_fresh_crops_in_order() -> None:
    lazy = canvases()
    found = lazy[:]
    assert found.shape == lazy.shape == (3, 16, 12, 3)
    assert (found[0] == 2).all()
    assert (found[2] == 1).all()
    cut = lazy.entries[1]
    np.testing.assert_array_equal(found[1], make_view(lazy.images[0], SPEC, cut.box).canvas)


def test_slices_agree_with_the_whole() -> None:
    lazy = canvases()
    np.testing.assert_array_equal(np.concatenate([lazy[0:2], lazy[2:9]]), np.asarray(lazy))
    assert lazy[3:9].shape == (0, 16, 12, 3)
    assert len(lazy) == 3
