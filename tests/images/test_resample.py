"""Sampling along an axis-aligned map, against values worked out by hand."""

from __future__ import annotations

import numpy as np

from sapiens_batch.images.resample import sample_crop
from sapiens_batch.records import Affine


def grey(values: list[list[int]]) -> np.ndarray:
    return np.repeat(np.array(values, np.uint8)[:, :, None], 3, axis=2)


def test_bilinear_blends_the_two_neighbours_by_distance() -> None:
    out = sample_crop(
        grey([[0, 100, 200]]), Affine(0.25, 1.0, 0.25, 0.0), (1, 4), kernel="bilinear"
    )
    np.testing.assert_array_equal(out[0, :, 0], [25, 50, 75, 100])


def test_bilinear_fades_to_zero_within_one_pixel_outside() -> None:
    out = sample_crop(grey([[100, 100]]), Affine(0.5, 1.0, -1.5, 0.0), (1, 7), kernel="bilinear")
    np.testing.assert_array_equal(out[0, :, 0], [0, 0, 50, 100, 100, 100, 50])


def test_bicubic_halfway_uses_the_weights_of_a_minus_three_quarters() -> None:
    # at 0.5: -0.09375, 0.59375, 0.59375, -0.09375
    out = sample_crop(
        grey([[0, 160, 160, 0]]), Affine(1.0, 1.0, 1.5, 0.0), (1, 1), kernel="bicubic"
    )
    assert out[0, 0, 0] == 190


def test_bicubic_overshoot_is_clipped() -> None:
    out = sample_crop(
        grey([[0, 255, 255, 0]]), Affine(1.0, 1.0, 1.5, 0.0), (1, 1), kernel="bicubic"
    )
    assert out[0, 0, 0] == 255


def test_rows_and_columns_are_independent() -> None:
    rng = np.random.default_rng(1)
    image = rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)
    out = sample_crop(image, Affine(2.0, 3.0, 1.0, 2.0), (12, 20), kernel="bilinear")
    np.testing.assert_array_equal(out, image[2:38:3, 1:41:2])
