"""Dense labels as pictures."""

from __future__ import annotations

import numpy as np
import pytest

from sapiens_batch.sheets import maps

PALETTE = np.array([[50, 50, 50], [255, 0, 0]], np.uint8)


def test_normals_are_coloured_by_direction() -> None:
    normals = np.zeros((3, 1, 3), np.float16)
    normals[0, 0, 0] = normals[1, 0, 1] = normals[2, 0, 2] = 1
    picture = maps.normal_picture(normals)
    np.testing.assert_array_equal(picture[0], [[255, 127, 127], [127, 255, 127], [127, 127, 255]])


def test_pixels_without_normals_show_the_ground() -> None:
    normals = np.full((3, 2, 2), np.nan, np.float16)
    np.testing.assert_array_equal(maps.normal_picture(normals), maps.ground((2, 2)))


def test_near_is_red_and_far_is_blue() -> None:
    depth = np.array([[1.05, 2.0, 3.5]], np.float16)
    near, between, far = maps.depth_picture(depth, (1.0, 4.0))[0].astype(int)
    assert near[0] > near[1] > near[2]
    assert between[1] > far[1]
    assert far[2] > far[0]


def test_depth_is_drawn_on_the_persons_where_they_are_known() -> None:
    depth = np.array([[1.0, 2.0, 4.0]], np.float16)
    persons = np.array([[True, True, False]])
    shown = maps.depth_picture(depth, (1.0, 4.0), persons)
    everywhere = maps.depth_picture(depth, (1.0, 4.0))
    np.testing.assert_array_equal(shown[0, :2], everywhere[0, :2])
    np.testing.assert_array_equal(shown[0, 2], maps.ground((1, 3))[0, 2])


def test_depth_colours_are_spread_over_the_persons() -> None:
    depth = np.full((20, 20), 50.0, np.float32)
    depth[:10] = np.linspace(2.0, 3.0, 200).reshape(10, 20)
    persons = np.zeros((20, 20), bool)
    persons[:10] = True
    near, far = maps.depth_range(depth, persons) or (0, 0)
    assert near == pytest.approx(2.02, abs=0.01)
    # twice the persons' own depth behind them
    assert far == pytest.approx(2.98 + 2 * 0.96, abs=0.03)
    assert maps.depth_range(depth) == pytest.approx((2.05, 50.0), abs=0.05)


def test_there_is_no_range_without_depth() -> None:
    assert maps.depth_range(np.full((2, 2), np.nan)) is None


def test_parts_are_in_the_colours_of_the_palette() -> None:
    mask = np.ones((4, 4), np.uint8)
    np.testing.assert_array_equal(maps.mask_picture(mask, PALETTE, None)[1, 1], [255, 0, 0])
    over = maps.mask_picture(mask, PALETTE, np.zeros((4, 4, 3), np.uint8))[1, 1]
    np.testing.assert_array_equal(over, [158, 0, 0])


def test_an_opaque_matte_shows_the_foreground_and_a_clear_one_the_ground() -> None:
    matte = np.zeros((4, 1, 2), np.float16)
    matte[:, 0, 0] = (1.0, 0.5, 0.0, 1.0)
    picture = maps.matte_picture(matte, None)
    np.testing.assert_array_equal(picture[0, 0], [255, 127, 0])
    np.testing.assert_array_equal(picture[0, 1], maps.ground((1, 2), bright=True, cell=10)[0, 1])


def test_a_matte_of_whole_numbers_takes_its_foreground_from_the_photo() -> None:
    photo = np.full((1, 2, 3), 200, np.uint8)
    picture = maps.matte_picture(np.array([[255, 0]], np.uint8), photo)
    np.testing.assert_array_equal(picture[0, 0], [200, 200, 200])
    np.testing.assert_array_equal(picture[0, 1], maps.ground((1, 2), bright=True)[0, 1])
