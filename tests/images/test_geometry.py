"""Maps of views, frames and heatmaps, checked against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from sapiens_batch.images.geometry import (
    crop_map,
    fit_size,
    frame_for,
    heatmap_map,
    letterbox,
    stretch_map,
)
from sapiens_batch.records import Affine, Region

VIEW = (1024, 768)


def test_stretching_maps_outer_edges_to_outer_edges() -> None:
    to_source = stretch_map((2048, 384), VIEW)
    assert to_source == Affine(0.5, 2.0, -0.25, 0.5)
    corners = to_source.apply(np.array([[-0.5, -0.5], [767.5, 1023.5]]))
    np.testing.assert_allclose(corners, [[-0.5, -0.5], [383.5, 2047.5]])


def test_a_landscape_photo_is_letterboxed_with_the_odd_row_below() -> None:
    content, to_source = letterbox((425, 640), (128, 96))
    assert content == Region(top=32, left=0, height=63, width=96)
    np.testing.assert_allclose(to_source.apply(np.array([-0.5, 31.5])), [-0.5, -0.5], atol=1e-9)
    np.testing.assert_allclose(to_source.apply(np.array([95.5, 94.5])), [639.5, 424.5])


def test_a_portrait_photo_is_letterboxed_with_the_odd_column_on_the_right() -> None:
    content, _ = letterbox((380, 70), (128, 96))
    assert content == Region(top=0, left=36, height=128, width=23)


@pytest.mark.parametrize(
    ("source", "expected"),
    [((1, 65_535), (1, 768)), ((65_535, 1), (1024, 1)), ((1, 1), (768, 768)), ((3, 3), (768, 768))],
)
def test_content_never_vanishes(source: tuple[int, int], expected: tuple[int, int]) -> None:
    assert fit_size(source, VIEW) == expected


def test_a_frame_has_the_size_of_the_letterbox_content_at_the_top_left() -> None:
    frame = frame_for((425, 640), (128, 96))
    assert (frame.height, frame.width) == (63, 96)
    corners = frame.to_source.apply(np.array([[-0.5, -0.5], [95.5, 62.5]]))
    np.testing.assert_allclose(corners, [[-0.5, -0.5], [639.5, 424.5]])


def test_a_frame_and_its_letterbox_agree_on_every_pixel() -> None:
    content, view_to_source = letterbox((333, 517), VIEW)
    frame = frame_for((333, 517), VIEW)
    inside = np.array([[0.0, 0.0], [100.0, 50.0]])
    on_canvas = inside + np.array([content.left, content.top])
    np.testing.assert_allclose(frame.to_source.apply(inside), view_to_source.apply(on_canvas))


def test_a_crop_puts_its_first_and_last_pixel_on_the_edges_of_the_enlarged_box() -> None:
    # 300 x 400 is 3:4 already: enlarged to 375 x 500 around (250, 400)
    to_source = crop_map([100, 200, 300, 400], VIEW)
    corners = to_source.apply(np.array([[0, 0], [767, 1023]]))
    np.testing.assert_allclose(corners, [[62.5, 150], [437.5, 650]])


def test_a_wide_box_is_made_taller_and_a_tall_box_wider() -> None:
    wide = crop_map([0, 0, 600, 100], VIEW).apply(np.array([[0, 0], [767, 1023]]))
    np.testing.assert_allclose(wide, [[-75, -450], [675, 550]])
    tall = crop_map([0, 0, 10, 400], VIEW).apply(np.array([[0, 0], [767, 1023]]))
    np.testing.assert_allclose(tall, [[-182.5, -50], [192.5, 450]])


def test_heatmap_corners_coincide_with_crop_corners() -> None:
    crop = crop_map([100, 200, 300, 400], VIEW)
    corners = heatmap_map(crop, VIEW, (256, 192)).apply(np.array([[0, 0], [191, 255]]))
    np.testing.assert_allclose(corners, [[62.5, 150], [437.5, 650]])
