"""Frames to source pixels, against OpenCV's half-pixel resize and hand-made cases."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapiens_batch.images.frames import renormalize, to_source
from sapiens_batch.records import Affine


def scaling(frame: tuple[int, int], source: tuple[int, int]) -> Affine:
    """The map of a frame that shows the whole source, pixel centres at integers."""
    scale_y, scale_x = source[0] / frame[0], source[1] / frame[1]
    return Affine(scale_x, scale_y, (scale_x - 1) / 2, (scale_y - 1) / 2)


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.integers(1, 30), st.integers(1, 30)),
)
def test_bilinear_equals_a_resize_with_pixel_centres(
    frame: tuple[int, int], source: tuple[int, int]
) -> None:
    values = np.random.default_rng(0).random(frame, np.float32)
    found = to_source(
        values, scaling(frame, source), source, interpolation="bilinear", fill_value=np.nan
    )
    expected = cv2.resize(values, source[::-1], interpolation=cv2.INTER_LINEAR)
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_the_identity_changes_nothing_and_keeps_nan_where_it_is() -> None:
    values = np.array([[1, np.nan, 3], [4, 5, 6]], np.float16)
    found = to_source(
        values, Affine(1, 1, 0, 0), (2, 3), interpolation="bilinear", fill_value=np.nan
    )
    np.testing.assert_array_equal(found, values)
    assert found.dtype == np.float16


def test_what_the_frame_does_not_cover_is_fill() -> None:
    values = np.array([[1, 2], [3, 4]], np.uint8)
    found = to_source(values, Affine(1, 1, 1, 2), (5, 4), interpolation="nearest", fill_value=255)
    assert found.tolist() == [
        [255, 255, 255, 255],
        [255, 255, 255, 255],
        [255, 1, 2, 255],
        [255, 3, 4, 255],
        [255, 255, 255, 255],
    ]


def test_a_mirrored_frame_is_mirrored_back() -> None:
    values = np.array([[1, 2, 3]], np.uint8)
    found = to_source(values, Affine(-1, 1, 2, 0), (1, 3), interpolation="nearest", fill_value=0)
    assert found.tolist() == [[3, 2, 1]]


def test_leading_axes_are_kept() -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    found = to_source(
        values, scaling((2, 2), (4, 4)), (4, 4), interpolation="bilinear", fill_value=np.nan
    )
    assert found.shape == (3, 4, 4)
    assert found[0, 0].tolist() == [0, 0.25, 0.75, 1]


def test_whole_numbers_are_rounded_not_cut_off() -> None:
    found = to_source(
        np.array([[0, 255]], np.uint8),
        scaling((1, 2), (1, 4)),
        (1, 4),
        interpolation="bilinear",
        fill_value=0,
    )
    assert found.tolist() == [[0, 64, 191, 255]]


@pytest.mark.parametrize("axis", [0, -1])
def test_vectors_are_made_unit_and_zero_stays_zero(axis: int) -> None:
    vectors = np.moveaxis(np.array([[3, 0], [4, 0], [0, 0]], np.float32), 0, axis)
    found = np.moveaxis(renormalize(vectors, axis), axis, 0)
    np.testing.assert_allclose(found, [[0.6, 0], [0.8, 0], [0, 0]], atol=1e-6)
