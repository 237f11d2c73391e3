"""Keypoints from heatmaps, exact to a fraction of a heatmap pixel (DARK).

A keypoint is where a Gaussian fitted to the smoothed logarithm of its heatmap has its maximum: one
Newton step from the highest pixel. Where the heatmap lies in the image is left to the caller.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (the name that torch's own documentation uses)

BLUR_SIZE = 11
BLUR_SIGMA = 0.3 * ((BLUR_SIZE - 1) / 2 - 1) + 0.8
"""What OpenCV takes for an 11-pixel kernel when no sigma is given; the models are decoded so."""
LOG_RANGE = (1e-3, 50.0)
HESSIAN_EPS = torch.finfo(torch.float32).eps


def decode_heatmaps(heatmaps: Tensor) -> tuple[Tensor, Tensor]:
    """Positions and scores of heatmap peaks.

    Args:
        heatmaps: (n, K, h, w) float32.

    Returns:
        (n, K, 2) float64 positions (x, y) in heatmap pixels, pixel centres at integers, and
        (n, K) float32 scores: the highest value of the heatmap as it came. A keypoint whose score
        is not positive, or whose fit is not finite, is missing: NaN position. A score that is not
        finite becomes 0.
    """
    w = heatmaps.shape[-1]
    finite = heatmaps.isfinite().flatten(2).all(-1)
    scores, flat = heatmaps.flatten(2).max(-1)  # (n, K)
    scores = torch.where(finite, scores, 0.0)
    peak_x, peak_y = flat % w, flat // w
    windows = _log_windows(heatmaps, scores, peak_x, peak_y)  # (n, K, 3, 3)
    step = _newton_step(windows)
    positions = torch.stack([peak_x, peak_y], dim=-1) + step
    usable = (scores > 0) & positions.isfinite().all(-1)
    return torch.where(usable[..., None], positions, torch.nan), scores


def _log_windows(heatmaps: Tensor, scores: Tensor, peak_x: Tensor, peak_y: Tensor) -> Tensor:
    """Log of the smoothed heatmap around each peak, edges replicated, float64 (n, K, 3, 3)."""
    h, w = heatmaps.shape[-2:]
    blurred = _blur(heatmaps)
    # a peak so lonely that its surroundings outweigh it keeps its pixel: all is clipped below
    height = blurred.amax((-2, -1))
    gain = torch.where(height > 0, scores / height, 1.0)
    scaled = blurred * gain[..., None, None]
    offsets = torch.arange(-1, 2, device=heatmaps.device)
    rows = (peak_y[..., None] + offsets).clamp(0, h - 1)  # (n, K, 3)
    columns = (peak_x[..., None] + offsets).clamp(0, w - 1)
    index = rows[..., :, None] * w + columns[..., None, :]  # (n, K, 3, 3)
    values = scaled.flatten(2).gather(-1, index.flatten(2)).reshape(index.shape)
    return values.clamp(*LOG_RANGE).double().log()


def _blur(heatmaps: Tensor) -> Tensor:
    """Gaussian blur of each (h, w) map with zeros outside."""
    n, K, h, w = heatmaps.shape
    taps = torch.arange(BLUR_SIZE, device=heatmaps.device, dtype=torch.float64) - BLUR_SIZE // 2
    kernel = torch.exp(-0.5 * (taps / BLUR_SIGMA) ** 2)
    kernel = (kernel / kernel.sum()).to(heatmaps.dtype)
    pad = BLUR_SIZE // 2
    maps = heatmaps.reshape(n * K, 1, h, w)
    maps = F.conv2d(maps, kernel.view(1, 1, 1, -1), padding=(0, pad))
    maps = F.conv2d(maps, kernel.view(1, 1, -1, 1), padding=(pad, 0))
    return maps.reshape(n, K, h, w)


def _newton_step(windows: Tensor) -> Tensor:
    """From the centre of (..., 3, 3) windows to the maximum of the quadratic fit, (..., 2)."""
    centre = windows[..., 1, 1]
    left, right = windows[..., 1, 0], windows[..., 1, 2]
    above, below = windows[..., 0, 1], windows[..., 2, 1]
    dx, dy = (right - left) / 2, (below - above) / 2
    dxx = right - 2 * centre + left + HESSIAN_EPS
    dyy = below - 2 * centre + above + HESSIAN_EPS
    around = right + below + left + above
    dxy = (windows[..., 2, 2] + windows[..., 0, 0] + 2 * centre - around) / 2
    determinant = dxx * dyy - dxy * dxy
    step = torch.stack([dyy * dx - dxy * dy, dxx * dy - dxy * dx], dim=-1)
    return -step / determinant[..., None]
