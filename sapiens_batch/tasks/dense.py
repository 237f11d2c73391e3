"""What tasks with a dense array share: frames, and rows of a fixed shape around them.

Knows no task's meaning. A label lies at the top left of its row, all else is fill.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sapiens_batch.images.geometry import frame_for
from sapiens_batch.records import Affine, Array, ArrayField, Frame, Problem, ViewBatch
from sapiens_batch.tasks.base import NON_FINITE


def stretch_frames(views: ViewBatch) -> tuple[Frame, ...]:
    """Frames of stretched views: the source's aspect again, inside the size of the view."""
    canvas = (views.spec.height, views.spec.width)
    return tuple(frame_for(size, canvas) for size in views.source_sizes)


def letterbox_frames(views: ViewBatch) -> tuple[Frame, ...]:
    """Frames of letterboxed views: the content itself, so that nothing is resampled."""
    return tuple(
        Frame(
            content.height,
            content.width,
            Affine(1.0, 1.0, content.left, content.top).then(to_source),
        )
        for content, to_source in zip(views.content, views.to_source, strict=True)
    )


def letterbox_content(maps: Tensor, views: ViewBatch) -> list[Tensor]:
    """The part of each map that shows the image: n tensors (K, h, w) of (n, K, H, W)."""
    return [
        image_maps[
            :,
            content.top : content.top + content.height,
            content.left : content.left + content.width,
        ]
        for image_maps, content in zip(maps, views.content, strict=True)
    ]


def fill_rows(labels: Sequence[Tensor], field: ArrayField, device: torch.device) -> Tensor:
    """Rows (n, *row_shape) with each label at the top left, in the field's dtype, on `device`."""
    dtype: torch.dtype = getattr(torch, field.dtype)
    rows = torch.full((len(labels), *field.row_shape), field.fill_value, dtype=dtype, device=device)
    for row, label in zip(rows, labels, strict=True):
        row[..., : label.shape[-2], : label.shape[-1]] = label
    return rows


def non_finite_problems(finite: Sequence[bool], what: str) -> tuple[Problem | None, ...]:
    """A problem for each view whose raw output is not finite throughout."""
    problem = Problem(
        NON_FINITE,
        f"the model gave NaN or infinite values for {what}: the label is left out; try "
        "runtime.dtype float32",
    )
    return tuple(None if good else problem for good in finite)


def all_finite(maps: Tensor) -> list[bool]:
    """Whether each of (n, ...) maps is finite throughout."""
    finite: list[bool] = maps.isfinite().flatten(1).all(dim=1).tolist()
    return finite


def to_host(tensor: Tensor) -> Array:
    """A device tensor as a numpy array."""
    host: Array = tensor.cpu().numpy()
    return host
