"""Encoders and heads on one device: views in, labels out.

This is what a GPU actor runs. Reading images and making views is left to `images`, meaning of raw
outputs to `tasks`. Tasks whose encoder weights, view and rotary precision agree share one forward
pass. The labels of a view do not depend on its neighbours in the batch (invariant I7).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import torch
from torch import Tensor

from sapiens_batch.errors import SpecError
from sapiens_batch.job.spec import TaskSpec
from sapiens_batch.models.configs import RopeDtype
from sapiens_batch.models.encoder import Encoder, Encoding
from sapiens_batch.models.heads import Head, HeadOutput
from sapiens_batch.models.weights import (
    Checkpoint,
    load_encoder,
    load_head,
    resolve_checkpoint,
)
from sapiens_batch.records import (
    Array,
    LabelSchema,
    TaskLabels,
    TaskName,
    ViewBatch,
    ViewSpec,
)
from sapiens_batch.tasks import TASKS
from sapiens_batch.tasks.base import Outputs, Task

BatchViews = int | Literal["auto"]

# At 1024 x 768 a view has 3,081 tokens, so a few views fill an accelerator.
_AUTO_BATCH_VIEWS: Final = {"cuda": 8, "cpu": 4}
_PIXEL_MEAN = (0.485, 0.456, 0.406)
_PIXEL_STD = (0.229, 0.224, 0.225)


def resolve(tasks: Mapping[TaskName, TaskSpec]) -> dict[TaskName, Checkpoint]:
    """Find and identify the weights of each task, without keeping them in memory.

    Raises:
        SpecError: When a task is not there yet.
        WeightsError: When a checkpoint cannot be found or read.
    """
    return {
        name: resolve_checkpoint(spec.checkpoint, spec.revision, head=_task_type(name).head)
        for name, spec in tasks.items()
    }


def describe(
    tasks: Mapping[TaskName, TaskSpec],
    checkpoints: Mapping[TaskName, Checkpoint] | None = None,
) -> dict[TaskName, Task]:
    """The tasks with their schemas, views and checkpoints, without weights in memory.

    Args:
        tasks: Settings by task.
        checkpoints: Resolved weights by task; resolved here where not given.

    Raises:
        SpecError: When settings ask for what a task cannot do.
        WeightsError: When a checkpoint cannot be found or read, or has no head for its task.
    """
    resolved = resolve(tasks) if checkpoints is None else checkpoints
    return {name: _task_type(name)(spec, resolved[name]) for name, spec in tasks.items()}


class Labeler:
    """Labels views for all tasks of a job on one device.

    Make one with `Labeler.load`. It is not thread-safe.

    Args:
        tasks: Tasks by name.
        groups: Tasks that share a forward pass.
        heads: Heads of the tasks that have one.
        device: Where the modules are.
        dtype: Precision of the modules.
        batch_views: Views per forward pass.
    """

    def __init__(
        self,
        tasks: Mapping[TaskName, Task],
        groups: Sequence[_Group],
        heads: Mapping[TaskName, Head],
        *,
        device: torch.device,
        dtype: torch.dtype,
        batch_views: int,
    ) -> None:
        self._tasks = tasks
        self._groups = groups
        self._heads = heads
        self._device = device
        self._dtype = dtype
        self._batch_views = batch_views
        self._num_encoder_calls = 0
        shape = (1, 3, 1, 1)
        self._mean = torch.tensor(_PIXEL_MEAN, device=device).view(shape)
        self._std = torch.tensor(_PIXEL_STD, device=device).view(shape)

    @classmethod
    def load(
        cls,
        tasks: Mapping[TaskName, TaskSpec],
        *,
        checkpoints: Mapping[TaskName, Checkpoint] | None = None,
        device: str = "auto",
        dtype: Literal["float32", "bfloat16", "float16"] = "float32",
        batch_views: BatchViews = "auto",
        num_threads: int | None = None,
    ) -> Labeler:
        """Load the models of some tasks.

        Args:
            tasks: Settings by task.
            checkpoints: Resolved weights by task; resolved here where not given.
            device: `auto` (a CUDA device where there is one), `cpu`, `cuda` or `cuda:N`.
            dtype: Precision of the forward pass; decoding is in float32.
            batch_views: Views per forward pass.
            num_threads: CPU threads of torch in this process; None leaves them alone.

        Raises:
            SpecError: When settings or the device cannot be had.
            WeightsError: When a checkpoint cannot be found or read, or does not fit.
        """
        if num_threads is not None:
            torch.set_num_threads(num_threads)
        described = describe(tasks, checkpoints)
        where = _device(device)
        precision: torch.dtype = getattr(torch, dtype)
        heads = {
            name: load_head(task.checkpoint, device=where, dtype=precision)
            for name, task in described.items()
            if task.head is not None
        }
        return cls(
            described,
            _group(described, where, precision),
            heads,
            device=where,
            dtype=precision,
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
        with torch.inference_mode(), _exact_float32():
            for group in self._groups:
                labels |= self._label_group(group, views[group.view_spec])
        return {name: labels[name] for name in self._tasks}

    def _label_group(self, group: _Group, views: ViewBatch) -> dict[TaskName, TaskLabels]:
        parts: dict[TaskName, list[TaskLabels]] = {task.name: [] for task in group.tasks}
        for start in range(0, len(views), self._batch_views):
            batch = views.select(start, start + self._batch_views)
            encoding = self._encode(group, batch.canvases)
            for task in group.tasks:
                parts[task.name].append(task.decode(self._run_head(task, encoding), batch))
        return {task.name: task.join(parts[task.name]) for task in group.tasks}

    def _encode(self, group: _Group, canvases: Array) -> _Encodings:
        pixels = self._normalise(canvases)
        count = len(pixels)
        if group.flip:
            pixels = torch.cat([pixels, pixels.flip(-1)])
        encoding = group.encoder(pixels, group.stages)
        self._num_encoder_calls += 1
        mirrored = encoding.select(count, 2 * count) if group.flip else None
        return _Encodings(encoding.select(0, count), mirrored)

    def _normalise(self, canvases: Array) -> Tensor:
        """(n, H, W, 3) uint8 on the host to (n, 3, H, W) normalised on the device."""
        # a copy, because torch refuses to read memory that is not writable, as Arrow's is
        pixels = torch.tensor(canvases, device=self._device).permute(0, 3, 1, 2)
        return ((pixels.float() / 255 - self._mean) / self._std).to(self._dtype)

    def _run_head(self, task: Task, encodings: _Encodings) -> Outputs:
        head = self._heads.get(task.name)
        if head is None:
            return Outputs(encodings.plain, None)
        output = _widened(head(encodings.plain.features))
        if task.spec.flip_test and encodings.mirrored is not None:
            mirrored = _widened(head(encodings.mirrored.features))
            output = task.merge_mirrored(output, mirrored)
        return Outputs(encodings.plain, output)


class _Encodings(NamedTuple):
    plain: Encoding
    mirrored: Encoding | None


@dataclass(frozen=True, slots=True)
class _Group:
    """Tasks that share one forward pass."""

    view_spec: ViewSpec
    encoder: Encoder
    tasks: tuple[Task, ...]

    @property
    def stages(self) -> tuple[int, ...]:
        return tuple(sorted({stage for task in self.tasks for stage in task.stages}))

    @property
    def flip(self) -> bool:
        return any(task.spec.flip_test for task in self.tasks)


def _group(
    tasks: Mapping[TaskName, Task], device: torch.device, dtype: torch.dtype
) -> list[_Group]:
    encoders: dict[tuple[str, RopeDtype], Encoder] = {}
    members: dict[tuple[str, RopeDtype, ViewSpec], list[Task]] = {}
    for task in tasks.values():
        digest, rope_dtype = task.checkpoint.encoder_sha256, task.spec.rope_dtype
        if (digest, rope_dtype) not in encoders:
            encoders[digest, rope_dtype] = load_encoder(
                task.checkpoint, rope_dtype=rope_dtype, device=device, dtype=dtype
            )
        members.setdefault((digest, rope_dtype, task.view_spec), []).append(task)
    return [
        _Group(view_spec, encoders[digest, rope_dtype], tuple(group))
        for (digest, rope_dtype, view_spec), group in members.items()
    ]


def _task_type(name: TaskName) -> type[Task]:
    if name not in TASKS:
        raise SpecError(f"tasks.{name}: no such task; there are {', '.join(TASKS)}")
    return TASKS[name]


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


def _widened(output: HeadOutput) -> HeadOutput:
    scale = None if output.scale is None else output.scale.float()
    return HeadOutput(output.maps.float(), scale)


@contextmanager
def _exact_float32() -> Iterator[None]:
    """Convolutions in true float32: by default CUDA rounds their inputs to 10 bits (TF32)."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield
