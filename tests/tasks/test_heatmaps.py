"""Decoding of heatmaps whose peak is known."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812

from sapiens_batch.records import Preprocess
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


def test_the_original_code_fits_the_inverted_map_around_such_a_peak() -> None:
    """Smoothed and divided by the negative rest, the surroundings are above and the peak below."""
    rows, columns = torch.arange(32.0)[:, None], torch.arange(24.0)
    heatmap = -0.5 - 0.01 * ((columns - 9) ** 2 + (rows - 13) ** 2).expand(1, 1, 32, 24)
    heatmap = heatmap.clone()
    heatmap[0, 0, 11, 7] = 0.01
    kept, _ = decode_heatmaps(heatmap)
    original, _ = decode_heatmaps(heatmap, like=Preprocess.ORIGINAL)
    assert kept[0, 0].tolist() == [7, 11]
    assert original[0, 0].isfinite().all()
    assert (original[0, 0] - torch.tensor([7, 11])).abs().max() > 0.1


@settings(max_examples=30, deadline=None)
@given(
    x=st.floats(-3, 50),
    y=st.floats(-3, 66),
    sigma=st.floats(0.4, 9),
    height=st.floats(1e-4, 60),
    floor=st.floats(-0.05, 0.05),
)
def test_smoothing_around_the_peak_alone_changes_nothing(
    x: float, y: float, sigma: float, height: float, floor: float
) -> None:
    rows, columns = torch.arange(64.0)[:, None], torch.arange(48.0)
    squares = (columns - x) ** 2 + (rows - y) ** 2
    heatmap = (height * torch.exp(-squares / (2 * sigma**2)) + floor)[None, None]
    positions, scores = decode_heatmaps(heatmap)
    if scores[0, 0] <= 0:
        assert positions.isnan().all()
        return
    peak, expected = smoothed_everywhere(heatmap[0, 0].double())
    found = positions[0, 0] - peak
    torch.testing.assert_close(found, expected - peak, rtol=1e-3, atol=1e-3, equal_nan=True)


def smoothed_everywhere(heatmap: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The published recipe on the whole map: peak, and refined position."""
    taps = torch.exp(-((torch.arange(11.0, dtype=torch.float64) - 5) ** 2) / 8)
    kernel = torch.outer(taps, taps) / taps.sum() ** 2
    smooth = F.conv2d(heatmap[None, None], kernel[None, None], padding=5)[0, 0]
    gain = heatmap.max() / smooth.max() if smooth.max() > 0 else 1.0
    log = F.pad((smooth * gain).clamp(1e-3, 50).log()[None], (1, 1, 1, 1), mode="replicate")[0]
    y, x = divmod(int(heatmap.argmax()), heatmap.shape[1])
    w = log[y : y + 3, x : x + 3]
    gradient = torch.stack([w[1, 2] - w[1, 0], w[2, 1] - w[0, 1]]) / 2
    dxx, dyy = w[1, 2] - 2 * w[1, 1] + w[1, 0], w[2, 1] - 2 * w[1, 1] + w[0, 1]
    dxy = (w[2, 2] - w[1, 2] - w[2, 1] + 2 * w[1, 1] - w[1, 0] - w[0, 1] + w[0, 0]) / 2
    eps = torch.finfo(torch.float32).eps
    hessian = torch.stack([torch.stack([dxx + eps, dxy]), torch.stack([dxy, dyy + eps])])
    peak = torch.tensor([x, y], dtype=torch.float64)
    return peak, peak - torch.linalg.inv(hessian) @ gradient


def test_of_two_equal_peaks_the_first_in_reading_order_counts() -> None:
    heatmap = torch.zeros(1, 1, 32, 24)
    heatmap[0, 0, 20, 3] = heatmap[0, 0, 10, 15] = 1
    positions, _ = decode_heatmaps(heatmap)
    assert positions[0, 0].round().tolist() == [15, 10]
