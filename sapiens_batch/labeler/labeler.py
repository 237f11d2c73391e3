"""The labeler: views in, labels out; or images in, labels in source pixels out.

Reading images and making views is left to `images`, the meaning of raw outputs to `tasks`, loading
and forward passes to `forward`. The labels of a view do not depend on its neighbours in the batch
(invariant I7).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal

import numpy as np
import torch

from sapiens_batch.errors import SpecError
from sapiens_batch.labeler.batches import AdaptiveBatches
from sapiens_batch.labeler.checkpoints import describe
from sapiens_batch.labeler.forward import Group, PixelNormaliser, exact_float32, load_groups
from sapiens_batch.labeler.image_labels import Boxes, ImageInput, ImageLabels, Images
from sapiens_batch.labels import join_labels
from sapiens_batch.models.weights import Checkpoint
from sapiens_batch.records import LabelSchema, TaskLabels, TaskName, ViewBatch, ViewSpec
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.tasks.base import Task

BatchViews = int | Literal["auto"]
Precision = Literal["float32", "bfloat16", "float16"]

# At 1024 x 768 a view has 3,081 tokens, so a few views fill an accelerator.
_AUTO_BATCH_VIEWS: Final = {"cuda": 8, "cpu": 4}
_OVERFLOWS_IN_FLOAT16: Final = frozenset({"sapiens2-5b"})


class Labeler:
    """Labels views or images for all tasks of a job on one device.

    Make one with `Labeler.load`. It is not thread-safe.

    Args:
        tasks: Tasks by name.
        groups: Tasks that share a forward pass, with their models.
        normalise: Brings canvases to the device.
        batch_views: Views per forward pass.
    """

    def __init__(
        self,
        tasks: Mapping[TaskName, Task],
        groups: Sequence[Group],
        normalise: PixelNormaliser,
        *,
        batch_views: int,
    ) -> None:
        self._tasks = tasks
        self._groups = groups
        self._normalise = normalise
        self._batches = AdaptiveBatches(batch_views)
        self._num_encoder_calls = 0

    @classmethod
    def load(
        cls,
        tasks: Mapping[TaskName, TaskSpec] | Mapping[TaskName, str],
        *,
        checkpoints: Mapping[TaskName, Checkpoint] | None = None,
        device: str = "auto",
        dtype: Precision = "float32",
        batch_views: BatchViews = "auto",
        num_threads: int | None = None,
        compiled: bool = False,
        accept_licences: Collection[str] = (),
    ) -> Labeler:
        """Load the models of some tasks.

        Args:
            tasks: Settings by task, or just their checkpoints.
            checkpoints: Resolved weights by task; resolved here where not given.
            device: `auto` (a CUDA device where there is one), `cpu`, `cuda` or `cuda:N`.
            dtype: Precision of the forward pass; decoding is in float32.
            batch_views: Views per forward pass. Halved while memory does not suffice.
            num_threads: CPU threads of torch in this process; None leaves them alone.
            compiled: Whether encoders go through `torch.compile`.
            accept_licences: Keys of the licences of released weights that you accept.

        Raises:
            SpecError: When settings or the device cannot be had, or terms were not accepted.
            WeightsError: When a checkpoint cannot be found or read, or does not fit.
        """
        if num_threads is not None:
            torch.set_num_threads(num_threads)
        described = describe(_specs(tasks), checkpoints, accepted=accept_licences, ask="argument")
        where = _device(device)
        _check_precision(described, dtype)
        precision: torch.dtype = getattr(torch, dtype)
        return cls(
            described,
            load_groups(described, device=where, dtype=precision, compiled=compiled),
            PixelNormaliser(where, precision),
            batch_views=_AUTO_BATCH_VIEWS[where.type] if batch_views == "auto" else batch_views,
        )

    @property
    def schemas(self) -> dict[TaskName, LabelSchema]:
        """What the labels of each task look like."""
        return {name: task.schema for name, task in self._tasks.items()}

    @property
    def view_specs(self) -> tuple[ViewSpec, ...]:
        """The views that `label` needs, each once."""
        return tuple(dict.fromkeys(task.view_spec for task in self._tasks.values()))

    @property
    def num_encoder_calls(self) -> int:
        """Forward passes through encoders so far."""
        return self._num_encoder_calls

    def label(self, views: Mapping[ViewSpec, ViewBatch]) -> dict[TaskName, TaskLabels]:
        """Label views for every task.

        Args:
            views: A batch, possibly empty, for each of `view_specs`.

        Returns:
            Labels by task, one row per view of the task's spec, in the order of the batch.
        """
        labels: dict[TaskName, TaskLabels] = {}
        with torch.inference_mode(), exact_float32():
            for group in self._groups:
                labels |= self._label_group(group, views[group.view_spec])
        return {name: labels[name] for name in self._tasks}

    def label_images(
        self,
        images: Sequence[ImageInput],
        boxes: Sequence[Boxes | None] | None = None,
        *,
        persons: Literal["given", "whole_image"] = "given",
    ) -> list[ImageLabels]:
        """Label images for every task.

        Args:
            images: Paths or addresses of image files, encoded files as bytes, Pillow images
                (turned upright by their EXIF tag), or uint8 arrays (H, W, 3) RGB or (H, W) grey.
            boxes: (P, 4) COCO xywh in source pixels for each image; None for an image without
                persons. Needed by tasks that label persons.
            persons: `whole_image` takes each image as one person, where no boxes are given.

        Returns:
            The labels of each image.

        Raises:
            InputError: Boxes are needed and missing, of another number than images, or such that
                no view can be cut; or an image is none, or its file cannot be read.
            SampleError: A file cannot be decoded.
        """
        opened = Images(images, boxes, persons=persons, needs_persons=self._needs_persons)
        labels: list[ImageLabels] = []
        for start in range(0, len(images), self._batches.size):
            part = opened.views(self.view_specs, start, start + self._batches.size)
            labels += part.split(self.label(part.batches), self._tasks)
        return labels

    @property
    def _needs_persons(self) -> tuple[TaskName, ...]:
        return tuple(
            name for name, task in self._tasks.items() if task.view_spec.owner.table == "persons"
        )

    def _label_group(self, group: Group, views: ViewBatch) -> dict[TaskName, TaskLabels]:
        parts = self._batches.run(
            len(views), lambda start, stop: self._label_batch(group, views.select(start, stop))
        )
        return {
            task.name: join_labels(task.schema, [part.pop(task.name) for part in parts])
            for task in group.tasks
        }

    def _label_batch(self, group: Group, views: ViewBatch) -> dict[TaskName, TaskLabels]:
        encodings = group.encode(self._normalise(np.asarray(views.canvases)))
        self._num_encoder_calls += 1
        return {
            task.name: task.decode(group.run_head(task, encodings), views) for task in group.tasks
        }


def _specs(
    tasks: Mapping[TaskName, TaskSpec] | Mapping[TaskName, str],
) -> dict[TaskName, TaskSpec]:
    return {
        name: TaskSpec(checkpoint=spec) if isinstance(spec, str) else spec
        for name, spec in tasks.items()
    }


def _check_precision(tasks: Mapping[TaskName, Task], dtype: Precision) -> None:
    for name, task in tasks.items():
        arch = task.checkpoint.config.encoder.name
        if dtype == "float16" and arch in _OVERFLOWS_IN_FLOAT16:
            raise SpecError(
                f"runtime.dtype: float16, but {arch} (tasks.{name}) overflows in it; "
                "use bfloat16, which costs the same, or float32"
            )


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in _AUTO_BATCH_VIEWS:
        raise SpecError(f"runtime.device: {name}; give auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise SpecError(
            f"runtime.device: {name}, but torch sees {torch.cuda.device_count()} CUDA devices"
        )
    return device
