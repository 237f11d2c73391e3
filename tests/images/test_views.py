"""Views of odd images, and what the spec decides."""

from __future__ import annotations

import numpy as np
import pytest

from sapiens_batch.errors import SpecError
from sapiens_batch.images.views import make_view
from sapiens_batch.records import CANVAS_STEPS, Preprocess, Region, ViewKind, ViewSpec

SHAPES = [(1, 1), (1, 2000), (2000, 1), (8, 65_500), (65_500, 8), (2, 3)]
BOX = np.array([0.0, 0.0, 1.0, 1.0], np.float32)


@pytest.mark.parametrize("preprocess", list(Preprocess))
@pytest.mark.parametrize("kind", list(ViewKind))
@pytest.mark.parametrize("shape", SHAPES)
def test_images_of_extreme_shape_make_views_of_their_colour(
    shape: tuple[int, int], kind: ViewKind, preprocess: Preprocess
) -> None:
    image = np.full((*shape, 3), (10, 120, 230), np.uint8)
    box = np.array([0, 0, shape[1], shape[0]], np.float32)
    spec = ViewSpec(kind, 128, 96, preprocess)
    view = make_view(image, spec, box)
    assert view.canvas.shape == (128, 96, 3)
    assert view.canvas.dtype == spec.canvas_dtype
    assert view.canvas.nbytes == spec.canvas_bytes
    if kind is not ViewKind.CROP:
        part = view.content
        content = view.canvas[part.top : part.top + part.height, part.left : part.left + part.width]
        assert (content == (10, 120, 230)).all()


def test_letterbox_padding_is_black_and_outside_the_content() -> None:
    view = make_view(np.full((10, 100, 3), 255, np.uint8), ViewSpec(ViewKind.LETTERBOX, 128, 96))
    assert view.content == Region(top=59, left=0, height=9, width=96)
    assert (view.canvas[59:68] == 255).all()
    assert view.canvas.sum() == 255 * 9 * 96 * 3


def test_a_crop_that_does_not_touch_the_image_is_black() -> None:
    image = np.full((20, 20, 3), 255, np.uint8)
    far = np.array([500, 500, 30, 40], np.float32)
    assert make_view(image, ViewSpec(ViewKind.CROP, 64, 48), far).canvas.max() == 0


def test_views_do_not_write_to_the_image() -> None:
    image = np.full((30, 40, 3), 7, np.uint8)
    image.flags.writeable = False
    for kind in ViewKind:
        make_view(image, ViewSpec(kind, 64, 48), BOX)


def test_an_unknown_variant_of_the_original_is_refused_by_name() -> None:
    spec = ViewSpec(ViewKind.STRETCH, 64, 48, Preprocess.ORIGINAL, "pointmap")
    with pytest.raises(SpecError, match="'pointmap'"):
        make_view(np.zeros((4, 4, 3), np.uint8), spec)


def test_a_crop_without_a_box_is_refused() -> None:
    with pytest.raises(SpecError, match="no box"):
        make_view(np.zeros((4, 4, 3), np.uint8), ViewSpec(ViewKind.CROP, 64, 48))


@pytest.mark.parametrize("kind", [ViewKind.STRETCH, ViewKind.LETTERBOX])
def test_a_view_of_a_person_is_a_view_of_the_pixels_that_the_box_touches(kind: ViewKind) -> None:
    image = np.random.default_rng(0).integers(0, 255, (50, 60, 3), np.uint8)
    spec = ViewSpec(kind, 32, 24)
    box = np.array([10.5, -3, 20, 30.2], np.float32)  # columns 10 to 30, rows 0 to 27
    view = make_view(image, spec, box)
    alone = make_view(np.ascontiguousarray(image[0:28, 10:31]), spec)
    np.testing.assert_array_equal(view.canvas, alone.canvas)
    assert view.content == alone.content
    corner = np.array([view.content.left - 0.5, view.content.top - 0.5])
    np.testing.assert_allclose(view.to_source.apply(corner), [9.5, -0.5], atol=1e-9)
    opposite = corner + np.array([view.content.width, view.content.height])
    np.testing.assert_allclose(view.to_source.apply(opposite), [30.5, 27.5], atol=1e-9)


def test_an_enlarged_crop_of_the_port_keeps_what_its_filter_overshoots() -> None:
    image = np.zeros((20, 20, 3), np.uint8)
    image[:, 10:] = 255
    box = np.array([6, 6, 8, 8], np.float32)
    port, original = (
        make_view(image, ViewSpec(ViewKind.CROP, 64, 48, preprocess), box).canvas
        for preprocess in (Preprocess.TRANSFORMERS, Preprocess.ORIGINAL)
    )
    assert (port.dtype, original.dtype) == (np.int16, np.uint8)
    assert port.max() > 270 * CANVAS_STEPS
    assert port.min() < -15 * CANVAS_STEPS
    rounded = np.clip(np.rint(port / CANVAS_STEPS), 0, 255)
    assert (np.abs(rounded - original) <= 1).all()


def test_a_view_of_a_person_of_less_than_a_pixel_shows_that_pixel() -> None:
    image = np.zeros((5, 5, 3), np.uint8)
    image[4, 3] = 200
    spec = ViewSpec(ViewKind.STRETCH, 32, 24)
    view = make_view(image, spec, np.array([3.2, 4.9, 0.1, 7], np.float32))
    assert (view.canvas == 200).all()
