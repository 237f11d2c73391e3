"""Crops that are cut when they are asked for."""

from __future__ import annotations

import pickle
import threading
import time

import numpy as np
import pytest

from sapiens_batch.images import crops
from sapiens_batch.images.crops import CropCanvases, Cut
from sapiens_batch.images.decoded import DecodedImage
from sapiens_batch.images.views import View, make_view
from sapiens_batch.records import Array, ViewKind, ViewSpec

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


@pytest.mark.parametrize("wanted", [0, -1, ..., [0, 1], np.array([True, False, True])])
def test_only_ranges_can_be_taken(wanted: object) -> None:
    with pytest.raises(TypeError, match="by ranges, not by"):
        canvases()[wanted]  # type: ignore[index]


@pytest.mark.parametrize("step", [-1, 2])
def test_ranges_are_contiguous(step: int) -> None:
    with pytest.raises(ValueError, match=f"not in steps of {step}"):
        canvases()[::step]


def test_an_array_of_crops_is_always_a_new_one() -> None:
    with pytest.raises(ValueError, match="cut into a new array"):
        np.array(canvases(), copy=False)
    np.testing.assert_array_equal(np.array(canvases(), copy=True), canvases()[:])


@pytest.fixture
def cut_by(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, str]]:
    """(left edge, thread) of every crop that is cut, in order; each takes a moment."""
    log: list[tuple[float, str]] = []

    def watched(image: DecodedImage, spec: ViewSpec, box: Array, *, canvas: Array) -> View:
        time.sleep(0.01)
        log.append((float(box[0]), threading.current_thread().name))
        return make_view(image, spec, box, canvas=canvas)

    monkeypatch.setattr(crops, "make_view", watched)
    return log


def crowd(count: int) -> CropCanvases:
    pixels = np.random.default_rng(0).integers(0, 255, (40, 50, 3), np.uint8)
    image = DecodedImage(pixels, (40, 50), 1, 1, "PNG", "pillow")
    boxes = [Cut(0, np.array([left, 2, 9, 12], np.float32)) for left in range(count)]
    return CropCanvases(SPEC, (image,), np.empty((0, 16, 12, 3), np.uint8), tuple(boxes))


def test_the_next_batch_is_cut_in_a_thread_while_the_device_works(
    cut_by: list[tuple[float, str]],
) -> None:
    lazy = crowd(5)
    batches = []
    for start in (0, 2, 4):
        batches.append(lazy[start : start + 2])
        until = time.monotonic() + 30
        while len(cut_by) < min(start + 4, 5) and time.monotonic() < until:
            time.sleep(0.01)  # the device at work
        time.sleep(0.05)
        assert len(cut_by) == min(start + 4, 5)  # one batch ahead, not more
    assert [left for left, _ in cut_by] == [0, 1, 2, 3, 4]
    threads = [thread.startswith("crops") for _, thread in cut_by]
    assert threads == [False, False, True, True, True]
    np.testing.assert_array_equal(np.concatenate(batches), crowd(5)[:])


def test_another_slice_than_the_next_gets_its_own_crops(
    cut_by: list[tuple[float, str]],
) -> None:
    lazy, whole = crowd(8), np.asarray(crowd(8))
    for start, stop in ((0, 4), (0, 2), (4, 6), (2, 4), (4, 8)):  # a batch that was too large
        np.testing.assert_array_equal(lazy[start:stop], whole[start:stop])
    assert all(not thread.startswith("crops") for _, thread in cut_by[:8])


def test_a_batch_that_was_begun_crosses_to_another_process() -> None:
    lazy = crowd(6)
    first = lazy[0:2]
    again = pickle.loads(pickle.dumps(lazy))
    np.testing.assert_array_equal(again[0:2], first)
    np.testing.assert_array_equal(np.asarray(again), np.asarray(lazy))


def test_what_goes_wrong_in_the_thread_is_raised_to_who_wants_that_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(image: DecodedImage, spec: ViewSpec, box: Array, *, canvas: Array) -> View:
        if box[0] >= 2:
            raise MemoryError("no room")
        return make_view(image, spec, box, canvas=canvas)

    monkeypatch.setattr(crops, "make_view", fail)
    lazy = crowd(4)
    assert len(lazy[0:2]) == 2
    with pytest.raises(MemoryError, match="no room"):
        lazy[2:4]
