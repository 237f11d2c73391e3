"""What tasks with a dense array share: frames, and rows of a fixed shape around them.

A label lies at the top left of its row, all else is fill. Frames follow from the map of each view
alone, so they serve whole images and boxes of persons alike.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sapiens_batch.images.geometry import frame_for, translation
from sapiens_batch.models.heads import HeadOutput
from sapiens_batch.records import (
    Affine,
    Array,
    ArrayField,
    ColumnField,
    Frame,
    TaskLabels,
    ViewBatch,
    ViewKind,
)
from sapiens_batch.tasks.base import ConfidenceFrom, Outputs, Task
from sapiens_batch.tasks.confidence import distances, sampled
from sapiens_batch.tasks.finite import all_finite, non_finite_problems
from sapiens_batch.tasks.resize import resized


class MapTask(Task):
    """A task whose label is the head's map on the frame, changed pixel by pixel."""

    can_pad = True
    channels: ClassVar[tuple[str, ...]]
    """Names of the map's channels, for messages and metadata; one channel has no channel axis."""
    what: ClassVar[str]
    unit: ClassVar[str] = ""
    description: ClassVar[str]
    confidence_from: ClassVar[ConfidenceFrom | None] = "flip_test"
    apart_unit: ClassVar[str] = ""
    """Unit of the disagreement of two views."""

    @property
    def columns(self) -> tuple[ColumnField, ...]:
        """Confidence where it is asked for; all else is in the array."""
        return disagreement_column(self, self.apart_unit) if self.is_confidence_asked else ()

    @property
    def array(self) -> ArrayField:
        """The maps."""
        size = self.checkpoint.config.image_size
        several = len(self.channels) > 1
        return ArrayField(
            row_shape=(len(self.channels), *size) if several else size,
            dtype=self.dtype,
            fill_value=float("nan"),
            dimension_names=("channel", "y", "x") if several else ("y", "x"),
            codec="blosc",
            unit=self.unit,
            description=self.description,
        )

    def decode(self, outputs: Outputs, views: ViewBatch) -> TaskLabels:
        """Bring the (n, K, h, w) maps to the frames and finish them."""
        finite = all_finite(outputs.maps)
        maps, frames = to_frames(outputs.maps, views)
        labels = [
            self.finish(one) if good else one[:, :0, :0]
            for one, good in zip(maps, finite, strict=True)
        ]
        if len(self.channels) == 1:
            labels = [label[0] for label in labels]
        rows = fill_rows(labels, self.array, outputs.maps.device)
        problems = non_finite_problems(finite, self.what)
        columns = self.confidence(labels, outputs, views) if self.is_confidence_asked else {}
        return TaskLabels(columns, to_host(rows), frames, problems)

    def confidence(
        self, labels: Sequence[Tensor], outputs: Outputs, views: ViewBatch
    ) -> dict[str, Array]:
        """Columns of confidence.

        Args:
            labels: n finished labels on their frames, of no pixels where one is not finite.
            outputs: Raw outputs.
            views: The n views.
        """
        finite = [bool(label.numel()) for label in labels]
        return disagreement_values(self, outputs, views, finite)

    def disagreement(self, output: HeadOutput, mirrored: HeadOutput) -> Tensor:
        """Distance between the values of each pixel."""
        return self.apart(sampled(output.maps), sampled(self.unmirrored(mirrored.maps)))

    def apart(self, some: Tensor, others: Tensor) -> Tensor:
        """(n, h, w) distance between (n, K, h, w) raw maps of two views."""
        return distances(some, others)

    @abstractmethod
    def finish(self, raw: Tensor) -> Tensor:
        """The label of a finite (K, h, w) map on its frame; the map may be changed."""


def disagreement_column(task: Task, unit: str) -> tuple[ColumnField, ...]:
    """The column of how far the two views of a flip test are apart."""
    what = "mean distance between the labels of the view and of its mirror image"
    return (ColumnField(f"{task.name}_disagreement", "float32", (), unit, what),)


def disagreement_values(
    task: Task, outputs: Outputs, views: ViewBatch, finite: Sequence[bool]
) -> dict[str, Array]:
    """Its (n,) values: means over what shows the image, NaN for labels that are not finite."""
    apart = outputs.disagreement
    if apart is None:
        return {f"{task.name}_disagreement": np.full(len(views), np.nan, np.float32)}
    down = apart.shape[1] / views.spec.height
    across = apart.shape[2] / views.spec.width
    means = [
        one[
            round(content.top * down) : round((content.top + content.height) * down),
            round(content.left * across) : round((content.left + content.width) * across),
        ].mean()
        for one, content in zip(apart, views.content, strict=True)
    ]
    values = to_host(torch.stack(means)) if means else np.empty(0, np.float32)
    usable = np.isfinite(values) & np.array(finite, bool)
    return {f"{task.name}_disagreement": np.where(usable, values, np.float32(np.nan))}


def to_frames(maps: Tensor, views: ViewBatch) -> tuple[list[Tensor], tuple[Frame, ...]]:
    """Raw maps on the frames of their views.

    The content of letterboxed views is the frame itself, so maps of the view's size are not
    resampled; those of heads with another number of doublings come to that size first. Maps of
    stretched views are resized (bilinear, half-pixel centres) until their pixels are square again.

    Args:
        maps: (n, K, h, w).
        views: The n views.

    Returns:
        n maps (K, height, width) of the frames' sizes, and the frames.
    """
    if views.spec.kind is ViewKind.LETTERBOX:
        canvas = (views.spec.height, views.spec.width)
        if tuple(maps.shape[-2:]) != canvas and len(maps):
            maps = torch.stack([resized(one, canvas) for one in maps])
        return letterbox_content(maps, views), letterbox_frames(views)
    frames = stretch_frames(views)
    sizes = [(frame.height, frame.width) for frame in frames]
    return [resized(one, size) for one, size in zip(maps, sizes, strict=True)], frames


def view_frames(views: ViewBatch) -> tuple[Frame, ...]:
    """The grids of the views themselves, whose pixels are not square in the source."""
    size = (views.spec.height, views.spec.width)
    return tuple(Frame(*size, to_source) for to_source in views.to_source)


def stretch_frames(views: ViewBatch) -> tuple[Frame, ...]:
    """Frames of stretched views: the aspect of what they show again, inside the view's size."""
    canvas = (views.spec.height, views.spec.width)
    return tuple(_stretch_frame(to_source, canvas) for to_source in views.to_source)


def _stretch_frame(to_source: Affine, canvas: tuple[int, int]) -> Frame:
    shown = (round(to_source.scale_y * canvas[0]), round(to_source.scale_x * canvas[1]))
    frame = frame_for(shown, canvas)
    # half-pixel centres: the first shown source pixel has this coordinate
    left = to_source.offset_x - (to_source.scale_x - 1) / 2
    top = to_source.offset_y - (to_source.scale_y - 1) / 2
    return Frame(frame.height, frame.width, frame.to_source.then(translation(left, top)))


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
    rows = torch.empty((len(labels), *field.row_shape), dtype=dtype, device=device)
    for row, label in zip(rows, labels, strict=True):
        height, width = label.shape[-2:]
        row[..., :height, :width] = label
        row[..., height:, :] = field.fill_value
        row[..., :height, width:] = field.fill_value
    return rows


def to_host(tensor: Tensor) -> Array:
    """A device tensor as a numpy array."""
    host: Array = tensor.cpu().numpy()
    return host
