"""Every view maps to its source and back, and its pixels lie where its map says."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sapiens_batch.images.geometry import (
    crop_map,
    frame_for,
    heatmap_map,
    letterbox,
    reduced_map,
    stretch_map,
)
from sapiens_batch.images.views import make_view, map_view
from sapiens_batch.records import CANVAS_STEPS, Affine, Array, Preprocess, ViewKind, ViewSpec

TOLERANCE_PX = 0.05
LEVEL_PX = 0.1

sides = st.one_of(st.sampled_from([1, 2, 3, 65_500]), st.integers(1, 70_000))
sizes = st.tuples(sides, sides)
view_sizes = st.sampled_from([(1024, 768), (128, 96), (1024, 1024), (4096, 3072)])
finite = st.floats(-1e5, 1e5, width=32)
extents = st.floats(0.125, 1e5, width=32)
boxes = st.tuples(finite, finite, extents, extents)


def assert_round_trip(to_source: Affine, view_size: tuple[int, int]) -> None:
    height, width = view_size
    corners = np.array([[0, 0], [width - 1, 0], [0, height - 1], [width - 1, height - 1]], float)
    back = to_source.inverse().apply(to_source.apply(corners).astype(np.float64))
    assert np.abs(back - corners).max() < TOLERANCE_PX


def assert_mirrored_round_trip(to_source: Affine, view_size: tuple[int, int]) -> None:
    mirrored = Affine(-1.0, 1.0, view_size[1] - 1.0, 0.0).then(to_source)
    assert_round_trip(mirrored, view_size)
    column = np.array([3.0, 5.0])
    twin = np.array([view_size[1] - 4.0, 5.0])
    assert np.abs(mirrored.apply(column) - to_source.apply(twin)).max() < TOLERANCE_PX


@given(sizes, view_sizes)
@settings(max_examples=60, deadline=None)
def test_views_of_whole_images_map_there_and_back(
    source: tuple[int, int], view: tuple[int, int]
) -> None:
    for to_source in (stretch_map(source, view), letterbox(source, view)[1]):
        assert_round_trip(to_source, view)
        assert_mirrored_round_trip(to_source, view)


@given(boxes, view_sizes)
@settings(max_examples=60, deadline=None)
def test_crops_and_their_heatmaps_map_there_and_back(
    box: tuple[float, float, float, float], view: tuple[int, int]
) -> None:
    crop = crop_map(box, view)
    assert_round_trip(crop, view)
    assert_mirrored_round_trip(crop, view)
    heatmap = (view[0] // 4, view[1] // 4)
    assert_round_trip(heatmap_map(crop, view, heatmap), heatmap)


fractions = st.floats(0, 1)
reductions = st.sampled_from([1, 2, 4, 8])


@given(
    sizes,
    view_sizes,
    st.tuples(fractions, fractions, st.floats(0.001, 1.5), st.floats(0.001, 1.5)),
    st.sampled_from([ViewKind.STRETCH, ViewKind.LETTERBOX]),
    reductions,
)
@settings(max_examples=120, deadline=None)
def test_views_of_persons_map_there_and_back_and_hold_what_is_visible_of_the_box(
    source: tuple[int, int],
    view: tuple[int, int],
    box: tuple[float, float, float, float],
    kind: ViewKind,
    reduction: int,
) -> None:
    height, width = source
    left, top = box[0] * (width - 1), box[1] * (height - 1)
    xywh = np.array([left, top, box[2] * width, box[3] * height])
    to_source, content = map_view(source, reduction, ViewSpec(kind, *view), xywh)
    assert_round_trip(to_source, view)
    assert_mirrored_round_trip(to_source, view)
    first = to_source.apply(np.array([content.left - 0.5, content.top - 0.5])) + 0.5
    last = (
        to_source.apply(
            np.array([content.left + content.width - 0.5, content.top + content.height - 0.5])
        )
        + 0.5
    )
    visible = np.minimum(xywh[:2] + xywh[2:], [width, height])
    assert (first <= xywh[:2] + TOLERANCE_PX).all()
    assert (last >= visible - TOLERANCE_PX).all()
    assert (np.array([0, 0]) - TOLERANCE_PX <= first).all()
    assert (last <= np.array([width, height]) + TOLERANCE_PX).all()
    assert np.abs(first / reduction - np.round(first / reduction)).max() < TOLERANCE_PX
    assert (xywh[:2] - first < reduction + TOLERANCE_PX).all()


@given(st.integers(0, 70_000), reductions)
@settings(max_examples=60, deadline=None)
def test_every_source_pixel_lies_in_the_block_of_a_reduced_pixel(
    column: int, reduction: int
) -> None:
    x, _ = reduced_map(reduction).inverse().apply(np.array([column, column]))
    assert round(x) == column // reduction
    assert abs(reduced_map(reduction).apply(np.array([x, x]))[0] - column) < TOLERANCE_PX


@given(sizes, view_sizes)
@settings(max_examples=60, deadline=None)
def test_letterbox_content_and_frame_lie_inside_their_grids(
    source: tuple[int, int], view: tuple[int, int]
) -> None:
    content, _ = letterbox(source, view)
    frame = frame_for(source, view)
    assert (frame.height, frame.width) == (content.height, content.width)
    assert 1 <= frame.height <= view[0]
    assert 1 <= frame.width <= view[1]
    right, below = view[1] - content.left - content.width, view[0] - content.top - content.height
    assert 0 <= right - content.left <= 1
    assert 0 <= below - content.top <= 1
    edges = frame.to_source.apply(np.array([[-0.5, -0.5], [frame.width - 0.5, frame.height - 0.5]]))
    expected = [[-0.5, -0.5], [source[1] - 0.5, source[0] - 0.5]]
    assert np.abs(edges - expected).max() < TOLERANCE_PX


def ramp(height: int, width: int) -> Array:
    """Red grows with x and green with y, by 10 levels a pixel: whole levels resolve 0.1 px."""
    y, x = np.indices((height, width))
    return np.stack([10 * x, 10 * y, x + y], axis=-1).astype(np.uint8)


@given(
    st.integers(14, 26),
    st.integers(14, 26),
    st.sampled_from([(128, 96), (16, 12), (12, 9)]),
    st.sampled_from(list(ViewKind)),
    st.sampled_from(list(Preprocess)),
    st.tuples(st.floats(-5, 5), st.floats(-5, 5), st.floats(8, 20), st.floats(8, 20)),
)
@settings(max_examples=150, deadline=None)
def test_pixels_of_a_view_lie_where_its_map_says(
    height: int,
    width: int,
    size: tuple[int, int],
    kind: ViewKind,
    preprocess: Preprocess,
    box: tuple[float, float, float, float],
) -> None:
    # Where the width shrinks and the height grows, OpenCV's AREA, which the original code asks for,
    # shifts rows by up to half a pixel; that is reproduced, and not what this test is about.
    shifted = width > size[1] and height < size[0]
    assume(not (preprocess is Preprocess.ORIGINAL and kind is ViewKind.STRETCH and shifted))
    around = np.array(box) if kind is ViewKind.CROP else None
    view = make_view(ramp(height, width), ViewSpec(kind, *size, preprocess), around)
    y, x = np.indices(size)
    source = view.to_source.apply(np.stack([x, y], axis=-1))  # (height, width, 2)
    # Filters reach past the border of the image; only its interior follows the ramp.
    reach = 1 + np.maximum(1, np.array([view.to_source.scale_x, view.to_source.scale_y]))
    last = np.array([width - 1, height - 1])
    interior = ((source >= reach) & (source <= last - reach)).all(axis=-1)
    if interior.any():
        steps = CANVAS_STEPS if view.canvas.dtype == np.int16 else 1
        error = view.canvas[interior][:, :2] / steps / 10 - source[interior]
        assert np.abs(error.mean(axis=0)).max() < LEVEL_PX
