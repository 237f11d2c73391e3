"""Keypoints from heatmaps, exact to a fraction of a heatmap pixel (DARK).

A keypoint is where a Gaussian fitted to the smoothed logarithm of its heatmap has its maximum: one
Newton step from the highest pixel. Where the heatmap lies in the image is left to the caller.

The references smooth whole heatmaps. Only nine smoothed values count, so only those are computed,
and the height to which a smoothed map is brought back falls out of the derivatives of its
logarithm. It is needed, and all of the map is smoothed, only where a value may leave `LOG_RANGE`.
"""

from __future__ import annotations

import cv2
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (the name that torch's own documentation uses)

from sapiens_batch.records import Preprocess
from sapiens_batch.tasks.finite import finite_maps

BLUR_SIZE = 11
BLUR_SIGMA = 0.3 * ((BLUR_SIZE - 1) / 2 - 1) + 0.8
"""What OpenCV takes for an 11-pixel kernel when no sigma is given; the models are decoded so."""
LOG_RANGE = (1e-3, 50.0)
HESSIAN_EPS = torch.finfo(torch.float32).eps
_REACH = BLUR_SIZE // 2 + 1  # from a peak to the farthest pixel that its 3 x 3 window depends on


def decode_heatmaps(
    heatmaps: Tensor, *, like: Preprocess = Preprocess.TRANSFORMERS
) -> tuple[Tensor, Tensor]:
    """Positions and scores of heatmap peaks.

    Args:
        heatmaps: (n, K, h, w) float32.
        like: Whose treatment of lonely peaks to follow: of those so lonely that nothing positive
            is left after smoothing. The port keeps such a peak's pixel, the original code fits the
            inverted map.

    Returns:
        (n, K, 2) float64 positions (x, y) in heatmap pixels, pixel centres at integers, and
        (n, K) float32 scores: the highest value of the heatmap as it came. A keypoint whose score
        is not positive, or whose fit is not finite, is missing: NaN position. A score that is not
        finite becomes 0.
    """
    rows = heatmaps.amax(-1)  # (n, K, h)
    peak_y = rows.argmax(-1)  # the first of equals, as in the references
    peak_row = heatmaps.take_along_dim(peak_y[..., None, None], dim=2)[:, :, 0]  # (n, K, w)
    peak_x = peak_row.argmax(-1)
    scores = torch.where(finite_maps(heatmaps.flatten(0, 1)).view_as(peak_x), rows.amax(-1), 0.0)
    windows = _log_windows(heatmaps, scores, peak_x, peak_y, like)  # (n, K, 3, 3)
    step = _newton_step(windows)
    positions = torch.stack([peak_x, peak_y], dim=-1) + step
    usable = (scores > 0) & positions.isfinite().all(-1)
    return torch.where(usable[..., None], positions, torch.nan), scores


def _log_windows(
    heatmaps: Tensor, scores: Tensor, peak_x: Tensor, peak_y: Tensor, like: Preprocess
) -> Tensor:
    """Log of the smoothed heatmap around each peak, edges replicated, float64 (n, K, 3, 3).

    Up to a constant each, which derivatives do not see.
    """
    windows = _smoothed_windows(heatmaps, peak_x, peak_y)
    centre, highest = windows[..., 1, 1], windows.amax((-2, -1))
    low, high = LOG_RANGE
    # the height of the smoothed map is at least its centre, so scaling is at most score / centre
    within = (windows.amin((-2, -1)) >= low) & (scores * highest <= high * centre)
    unsure = ((scores > 0) & ~within).nonzero(as_tuple=True)
    if len(unsure[0]):
        height = _smoothed_heights(heatmaps[unsure]).double()
        gain = scores[unsure].double() / height
        if like is Preprocess.TRANSFORMERS:
            gain = torch.where(height > 0, gain, 1.0)
        windows[unsure] = (windows[unsure] * gain[:, None, None]).clamp(low, high)
    return windows.log()


def _smoothed_windows(heatmaps: Tensor, peak_x: Tensor, peak_y: Tensor) -> Tensor:
    """The 3 x 3 smoothed values around each peak, edges replicated, float64 (n, K, 3, 3)."""
    h, w = heatmaps.shape[-2:]
    offsets = torch.arange(-_REACH, _REACH + 1, device=heatmaps.device)
    rows, columns = peak_y[..., None] + offsets, peak_x[..., None] + offsets  # (n, K, 13)
    index = rows.clamp(0, h - 1)[..., :, None] * w + columns.clamp(0, w - 1)[..., None, :]
    patch = heatmaps.flatten(2).gather(-1, index.flatten(2)).view(index.shape).double()
    inside_rows, inside_columns = (rows >= 0) & (rows < h), (columns >= 0) & (columns < w)
    patch = patch * (inside_rows[..., :, None] & inside_columns[..., None, :])
    down, across = _window_kernels(peak_y, h), _window_kernels(peak_x, w)  # (n, K, 3, 13)
    return down @ patch @ across.transpose(-2, -1)


def _window_kernels(peak: Tensor, length: int) -> Tensor:
    """Kernels (n, K, 3, 13) of the pixels before, at and after a peak, inside [0, length)."""
    kernel = _kernel(peak.device)
    shifted = torch.stack([F.pad(kernel, (start, 2 - start)) for start in range(3)])  # (3, 13)
    steps = torch.arange(-1, 2, device=peak.device)
    places = (peak[..., None] + steps).clamp(0, length - 1) - peak[..., None]  # (n, K, 3)
    return shifted[places + 1]


def _kernel(device: torch.device) -> Tensor:
    taps = torch.arange(BLUR_SIZE, device=device, dtype=torch.float64) - BLUR_SIZE // 2
    kernel = torch.exp(-0.5 * (taps / BLUR_SIGMA) ** 2)
    return kernel / kernel.sum()


def _smoothed_heights(maps: Tensor) -> Tensor:
    """The highest value of each of (m, h, w) maps after a Gaussian blur with zeros outside, (m,).

    On a CPU OpenCV's separable filter is fifty times as fast as convolutions of single channels.
    """
    kernel = _kernel(maps.device).to(maps.dtype)
    if maps.device.type == "cpu":
        taps = kernel.numpy()
        blurred = (
            cv2.sepFilter2D(one, -1, taps, taps, borderType=cv2.BORDER_CONSTANT)
            for one in maps.numpy()
        )
        return torch.tensor([one.max() for one in blurred], dtype=maps.dtype)
    pad = BLUR_SIZE // 2
    across = F.conv2d(maps[:, None], kernel.view(1, 1, 1, -1), padding=(0, pad))
    return F.conv2d(across, kernel.view(1, 1, -1, 1), padding=(pad, 0)).amax((1, 2, 3))


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
