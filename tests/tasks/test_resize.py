"""Resizing of maps, against torch's own."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812

from sapiens_batch.tasks.resize import resized

SIDES = st.integers(1, 40)


@settings(max_examples=60, deadline=None)
@given(st.tuples(SIDES, SIDES), SIDES, st.one_of(st.none(), SIDES))
def test_maps_are_resized_as_torch_does(
    size: tuple[int, int], height: int, width: int | None
) -> None:
    maps = torch.rand(3, *size, generator=torch.Generator().manual_seed(0))
    target = (height, size[1] if width is None else width)
    expected = F.interpolate(maps[None], size=target, mode="bilinear", align_corners=False)[0]
    torch.testing.assert_close(resized(maps, target), expected, atol=2e-6, rtol=0)
