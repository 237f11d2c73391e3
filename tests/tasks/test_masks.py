"""Masks without resizing all logits."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812

from sapiens_batch.tasks.masks import highest_class, resized_mask


def blobs(num_classes: int, size: tuple[int, int], seed: int) -> torch.Tensor:
    """Logits with large areas of one class, as a trained model gives them."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(1, num_classes, 3, 3, generator=generator)
    return F.interpolate(coarse, size=size, mode="bicubic")[0]


@settings(max_examples=25, deadline=None)
@given(
    size=st.tuples(st.integers(8, 60), st.integers(8, 60)),
    target=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    seed=st.integers(0, 99),
)
def test_a_resized_mask_is_the_highest_of_the_resized_logits(
    size: tuple[int, int], target: tuple[int, int], seed: int
) -> None:
    logits = blobs(7, size, seed)
    whole = F.interpolate(logits[None], size=target, mode="bilinear", align_corners=False)[0]
    mask = resized_mask(logits, target)
    highest, second = whole.topk(2, dim=0).values
    settled = highest - second > 1e-4
    assert torch.equal(mask[settled].long(), whole.argmax(0)[settled])


def test_of_equal_logits_the_first_class_counts() -> None:
    logits = torch.tensor([0.0, 2.0, 1.0, 2.0, -3.0])[:, None, None].expand(5, 2, 3)
    assert highest_class(logits).tolist() == [[1, 1, 1], [1, 1, 1]]


def test_noise_without_areas_gives_the_same_as_resizing() -> None:
    logits = torch.randn(29, 40, 30, generator=torch.Generator().manual_seed(3))
    whole = F.interpolate(logits[None], size=(53, 41), mode="bilinear", align_corners=False)[0]
    assert torch.equal(resized_mask(logits, (53, 41)).long(), whole.argmax(0))
