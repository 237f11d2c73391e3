"""Decoding JPEGs at a fraction of their size: when, and where the pixels lie afterwards."""

from __future__ import annotations

import io
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from sapiens_batch.images.decode import decode
from sapiens_batch.images.decoded import DecodeOptions
from sapiens_batch.images.geometry import reduced_map
from sapiens_batch.images.reduction import NEVER, crop_density, reduction_for
from sapiens_batch.images.views import View, make_view
from sapiens_batch.records import Affine, Array, Preprocess, ViewKind, ViewSpec

STRETCH = ViewSpec(ViewKind.STRETCH, 128, 96)
LETTERBOX = ViewSpec(ViewKind.LETTERBOX, 128, 96)
CROP = ViewSpec(ViewKind.CROP, 128, 96)


@pytest.mark.parametrize(
    ("size", "views", "density", "expected"),
    [
        ((256, 192), [STRETCH], 0.0, 2),
        ((255, 192), [STRETCH], 0.0, 1),
        ((1024, 768), [STRETCH], 0.0, 8),
        ((9000, 9000), [STRETCH], 0.0, 8),
        ((1024, 200), [STRETCH], 0.0, 2),
        # the content of the letterbox is 48 x 96
        ((96, 192), [LETTERBOX], 0.0, 2),
        ((96, 192), [STRETCH, LETTERBOX], 0.0, 1),
        ((1024, 768), [STRETCH], 0.25, 4),
        ((1024, 768), [STRETCH], NEVER, 1),
        ((1024, 768), [], 0.0, 8),
        ((1024, 768), [ViewSpec(ViewKind.STRETCH, 8, 6, Preprocess.ORIGINAL)], 0.0, 1),
    ],
)
def test_every_view_keeps_as_many_pixels_as_it_has(
    size: tuple[int, int], views: list[ViewSpec], density: float, expected: int
) -> None:
    assert reduction_for(size, views, density) == expected


def test_the_smallest_person_decides() -> None:
    boxes = np.array([[0, 0, 300, 400], [10, 10, 75, 100]], np.float32)
    # 75 x 100 is enlarged to 93.75 x 125
    assert crop_density(boxes, [CROP]) == pytest.approx(max(95 / 93.75, 127 / 125))
    assert crop_density(np.empty((0, 4)), [CROP]) == 0


def test_a_reduced_pixel_is_the_centre_of_its_block() -> None:
    assert reduced_map(4) == Affine(4, 4, 1.5, 1.5)


def jpeg(height: int, width: int, **options: object) -> bytes:
    """A smooth picture: red grows with x, green with y."""
    y, x = np.indices((height, width))
    picture = np.stack([255 * x / width, 255 * y / height, 0 * x + 128], axis=-1)
    buffer = io.BytesIO()
    Image.fromarray(picture.astype(np.uint8)).save(
        buffer, "JPEG", quality=98, subsampling=0, **options
    )
    return buffer.getvalue()


def scaled(*views: ViewSpec) -> DecodeOptions:
    return DecodeOptions(scaled=True, image_views=views)


def test_only_who_asks_for_it_gets_a_reduced_image() -> None:
    encoded = jpeg(1030, 771)
    assert decode(encoded, crop_density=0).reduction == 1
    assert decode(encoded, options=scaled(STRETCH)).reduction == 1
    image = decode(encoded, options=scaled(STRETCH), crop_density=0)
    assert image.reduction == 8
    assert image.pixels.shape == (129, 97, 3)
    assert image.size == (1030, 771)


def test_a_turned_image_is_measured_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    options = DecodeOptions(scaled=True, image_views=(ViewSpec(ViewKind.STRETCH, 100, 400),))
    image = decode(jpeg(803, 204, exif=exif), options=options, crop_density=0)
    assert (image.size, image.reduction, image.pixels.shape) == ((204, 803), 2, (102, 402, 3))


@pytest.mark.parametrize("spec", [STRETCH, LETTERBOX], ids=["stretch", "letterbox"])
@pytest.mark.parametrize("size", [(1031, 773), (1024, 768), (519, 1571)])
def test_views_of_a_reduced_image_show_what_views_of_the_whole_one_show(
    spec: ViewSpec, size: tuple[int, int]
) -> None:
    encoded = jpeg(*size)
    reduced = decode(encoded, options=scaled(spec), crop_density=0)
    assert reduced.reduction > 1
    assert_alike(make_view(reduced, spec), make_view(decode(encoded), spec))


@pytest.mark.parametrize("kind", list(ViewKind))
def test_views_of_persons_of_a_reduced_image_lie_where_their_maps_say(kind: ViewKind) -> None:
    size = (1031, 773)
    box = np.array([205.3, 190.7, 420, 611], np.float32)
    spec = ViewSpec(kind, 128, 96)
    image = decode(jpeg(*size), options=scaled(), crop_density=crop_density(box[None], [spec]))
    assert image.reduction == 4
    view = make_view(image, spec, box)
    y, x = np.indices((128, 96))
    source = view.to_source.apply(np.stack([x, y], axis=-1))
    expected = 255 * source / np.array([size[1], size[0]])
    inside = ((source > 30) & (source < np.array([742, 1000]))).all(axis=-1)
    part = view.content
    inside[: part.top + 2] = inside[part.top + part.height - 2 :] = False
    inside[:, : part.left + 2] = inside[:, part.left + part.width - 2 :] = False
    assert inside.sum() > 4000
    difference = np.abs(view.canvas[inside][:, :2] - expected[inside])
    assert difference.max() <= 3
    assert difference.mean() <= 0.8  # the picture is cut off to whole levels, the canvas rounded


def assert_alike(reduced: View, whole: View) -> None:
    assert reduced.to_source == whole.to_source
    assert reduced.content == whole.content
    difference = np.abs(reduced.canvas.astype(int) - whole.canvas)
    assert difference.mean() < 0.5
    assert difference.max() <= 3


def test_a_photo_looks_the_same_reduced(shared: Path) -> None:
    photo = shared / "photos" / "coco_000000000785.jpg"
    large: Array = cv2.resize(cv2.imread(str(photo)), (1921, 1283), interpolation=cv2.INTER_CUBIC)
    encoded = cv2.imencode(".jpg", large)[1].tobytes()
    reduced = decode(encoded, options=scaled(STRETCH), crop_density=0)
    small, full = make_view(reduced, STRETCH).canvas, make_view(decode(encoded), STRETCH).canvas
    assert np.abs(small.astype(int) - full).mean() < 1.5
    assert abs(small.mean() - full.mean()) < 0.5
