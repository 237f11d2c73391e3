"""Norms of the heads: their statistics, and what they must not depend on."""

from __future__ import annotations

import torch

from sapiens_batch.models.heads import ImageNorm
from sapiens_batch.models.layers import RotaryEmbedding, rotate, with_prefix


def test_statistics_are_in_float32_also_for_bfloat16_maps() -> None:
    noise = torch.randn(1, 4, 256, 192, generator=torch.Generator().manual_seed(0))
    maps = (10 + noise).bfloat16()
    expected = torch.nn.functional.instance_norm(maps.float())
    for memory in (torch.contiguous_format, torch.channels_last):
        found = ImageNorm()(maps.contiguous(memory_format=memory)).float()
        # what is left is rounding of the result to 8 bits
        torch.testing.assert_close(found, expected, rtol=2**-7, atol=1e-6)


def test_maps_may_lie_in_memory_either_way() -> None:
    maps = torch.randn(2, 6, 20, 15, generator=torch.Generator().manual_seed(1))
    expected = torch.nn.functional.instance_norm(maps)
    for memory in (torch.contiguous_format, torch.channels_last):
        found = ImageNorm()(maps.contiguous(memory_format=memory))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_tokens_before_the_grid_are_not_rotated() -> None:
    tables = with_prefix(RotaryEmbedding(16, dtype="float32")((3, 4)), 5)
    x = torch.randn(2, 17, 3, 16, generator=torch.Generator().manual_seed(2))
    turned = rotate(x, tables)
    assert torch.equal(turned[:, :5], x[:, :5])
    assert (turned[:, 5:] - x[:, 5:]).abs().max() > 0.1
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
