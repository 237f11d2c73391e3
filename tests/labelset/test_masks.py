"""Run lengths and polygons of masks, against pycocotools and OpenCV."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from sapiens_batch.errors import InputError
from sapiens_batch.labelset.masks import (
    bounding_box,
    decode_rle,
    encode_rle,
    polygons,
    run_lengths,
)
from sapiens_batch.records import Array

MASKS = arrays(bool, array_shapes(min_dims=2, max_dims=2, max_side=40), elements=st.booleans())


def test_runs_go_down_the_columns_and_begin_with_the_background() -> None:
    mask = np.array([[0, 1, 1], [0, 0, 1]], bool)
    assert run_lengths(mask) == [2, 1, 1, 2]
    assert run_lengths(~mask) == [0, 2, 1, 1, 2]
    assert run_lengths(np.zeros((2, 2), bool)) == [4]


@given(MASKS)
@settings(max_examples=100, deadline=None)
def test_run_lengths_are_those_of_pycocotools(mask: Array) -> None:
    coco = pytest.importorskip("pycocotools.mask", reason="the extra `coco` is not installed")
    ours = encode_rle(mask)
    theirs = coco.encode(np.asfortranarray(mask.astype(np.uint8)))
    assert ours["size"] == theirs["size"]
    assert ours["counts"] == theirs["counts"].decode()
    np.testing.assert_array_equal(decode_rle(theirs), mask)


@given(MASKS)
@settings(max_examples=60, deadline=None)
def test_decoding_gives_the_mask_back(mask: Array) -> None:
    np.testing.assert_array_equal(decode_rle(encode_rle(mask)), mask)
    plain = {"size": list(mask.shape), "counts": run_lengths(mask)}
    np.testing.assert_array_equal(decode_rle(plain), mask)


def test_run_lengths_of_another_size_are_refused() -> None:
    with pytest.raises(InputError, match="add up to 4, its size 3 x 3 to 9"):
        decode_rle({"size": [3, 3], "counts": [2, 2]})


def test_a_box_covers_the_pixels_inside() -> None:
    mask = np.zeros((6, 8), bool)
    mask[1:3, 2:7] = True
    assert bounding_box(mask) == (2, 1, 5, 2)
    assert bounding_box(np.zeros((6, 8), bool)) is None


def test_outlines_run_through_pixel_centres() -> None:
    mask = np.zeros((10, 12), bool)
    mask[2:6, 3:9] = True
    (outline,) = polygons(mask)
    assert outline.dtype == np.float32
    assert {tuple(point) for point in outline.tolist()} == {(3, 2), (8, 2), (8, 5), (3, 5)}


def test_parts_have_outlines_of_their_own_and_specks_none() -> None:
    mask = np.zeros((20, 20), bool)
    mask[1:6, 1:6] = mask[10:18, 10:18] = mask[0, 19] = True
    assert len(polygons(mask)) == 2


def test_filled_outlines_cover_a_round_mask() -> None:
    y, x = np.mgrid[:60, :60]
    mask = (x - 30) ** 2 + (y - 28) ** 2 < 20**2
    drawn = np.zeros(mask.shape, np.uint8)
    cv2.fillPoly(drawn, [np.rint(one).astype(np.int32) for one in polygons(mask)], 1)
    overlap = (mask & (drawn > 0)).sum() / (mask | (drawn > 0)).sum()
    assert overlap > 0.97
