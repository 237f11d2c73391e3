"""Masks without resizing or comparing all logits."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812

from sapiens_batch.tasks.masks import highest_class, resized_mask

SIDES = st.integers(1, 90)


def blobs(num_classes: int, size: tuple[int, int], seed: int, grain: int = 3) -> torch.Tensor:
    """Logits with large areas of one class, as a trained model gives them."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(1, num_classes, grain, grain, generator=generator)
    return F.interpolate(coarse, size=size, mode="bicubic")[0]


def assert_is_highest(mask: torch.Tensor | None, logits: torch.Tensor) -> None:
    """Compare with `argmax` of all logits resized, but for ties to within rounding."""
    assert mask is not None
    whole = F.interpolate(logits[None], size=mask.shape, mode="bilinear", align_corners=False)[0]
    chosen = whole.gather(0, mask.long()[None])[0]
    assert (chosen >= whole.amax(0) - 1e-5 * logits.abs().max()).all()
    if len(logits) > 1:
        highest, second = whole.topk(2, dim=0).values
        settled = highest - second > 1e-5 * logits.abs().max()
        assert torch.equal(mask[settled].long(), whole.argmax(0)[settled])


@settings(max_examples=60, deadline=None)
@given(
    num_classes=st.integers(1, 40),
    size=st.tuples(SIDES, SIDES),
    target=st.tuples(SIDES, SIDES),
    grain=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_a_resized_mask_is_the_highest_of_the_resized_logits(
    num_classes: int, size: tuple[int, int], target: tuple[int, int], grain: int, seed: int
) -> None:
    logits = blobs(num_classes, size, seed, grain)
    assert_is_highest(resized_mask(logits, target), logits)


@pytest.mark.parametrize("target", [(128, 96), (64, 96), (63, 96), (128, 72), (100, 50), (200, 96)])
def test_each_shape_of_frame_gives_the_highest_of_the_resized_logits(
    target: tuple[int, int],
) -> None:
    logits = blobs(29, (128, 96), seed=5, grain=6)
    assert_is_highest(resized_mask(logits, target), logits)


def test_noise_without_areas_gives_the_same_as_resizing() -> None:
    logits = torch.randn(29, 40, 32, generator=torch.Generator().manual_seed(3))
    for target in ((53, 41), (20, 32), (40, 32)):
        assert_is_highest(resized_mask(logits, target), logits)


@pytest.mark.parametrize("target", [(96, 96), (48, 96), (70, 96), (96, 70), (120, 130)])
def test_classes_that_win_around_single_logits_are_found_wherever_they_are(
    target: tuple[int, int],
) -> None:
    logits = blobs(20, (96, 96), seed=1, grain=2)
    diagonal = torch.arange(96)
    logits[diagonal % 20, diagonal, (7 * diagonal) % 96] = 9
    assert_is_highest(resized_mask(logits, target), logits)


def test_of_equal_logits_the_first_class_counts() -> None:
    logits = torch.zeros(29, 32, 16)
    logits[[11, 23]] = 2
    assert (highest_class(logits) == 11).all()
    for target in ((32, 16), (16, 16), (21, 9)):
        mask = resized_mask(logits, target)
        assert mask is not None
        assert (mask == 11).all()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [(0, 0, 0), (3, 30, 7), (6, 63, 47)])
@pytest.mark.parametrize("target", [(64, 48), (32, 48), (5, 4)])
def test_logits_that_are_no_numbers_give_no_mask(
    value: float, place: tuple[int, int, int], target: tuple[int, int]
) -> None:
    logits = blobs(7, (64, 48), seed=2)
    logits[place] = value
    assert resized_mask(logits, target) is None


def test_logits_whose_sum_overflows_give_a_mask() -> None:
    logits = blobs(3, (64, 48), seed=2) * 1e38
    assert_is_highest(resized_mask(logits, (32, 48)), logits)
