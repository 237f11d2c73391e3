"""Decoding of heatmaps whose peak is known."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sapiens_batch.tasks.heatmaps import decode_heatmaps


@settings(max_examples=40, deadline=None)
@given(x=st.floats(8, 39), y=st.floats(8, 55), sigma=st.floats(1.5, 4), height=st.floats(0.1, 1.2))
def test_the_centre_of_a_gaussian_is_found_to_a_fiftieth_of_a_pixel(
    x: float, y: float, sigma: float, height: float
) -> None:
    rows, columns = torch.arange(64.0)[:, None], torch.arange(48.0)
    squares = (columns - x) ** 2 + (rows - y) ** 2
    heatmap = height * torch.exp(-squares / (2 * sigma**2))
    positions, scores = decode_heatmaps(heatmap[None, None])
    assert (positions[0, 0] - torch.tensor([x, y])).abs().max() < 0.02
    assert scores[0, 0] == heatmap.max()


def test_a_peak_whose_surroundings_are_negative_keeps_its_pixel() -> None:
    heatmap = torch.full((1, 1, 32, 24), -1.0)
    heatmap[0, 0, 11, 7] = 0.5
    positions, _ = decode_heatmaps(heatmap)
    assert positions[0, 0].tolist() == [7, 11]


def test_of_two_equal_peaks_the_first_in_reading_order_counts() -> None:
    heatmap = torch.zeros(1, 1, 32, 24)
    heatmap[0, 0, 20, 3] = heatmap[0, 0, 10, 15] = 1
    positions, _ = decode_heatmaps(heatmap)
    assert positions[0, 0].round().tolist() == [15, 10]
