"""Encoders and heads in memory, and the forward pass that tasks share.

Tasks whose encoder weights, view and encoder settings agree share one forward pass; a task with a
flip test adds the mirrored views to it. Decoding what comes out is left to the tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor

from sapiens_batch.models.configs import RopeDtype
from sapiens_batch.models.encoder import Encoding, Stage
from sapiens_batch.models.heads import Head, HeadOutput
from sapiens_batch.models.weights import AnyEncoder, load_encoder, load_head
from sapiens_batch.records import Array, TaskName, ViewSpec
from sapiens_batch.tasks.base import Outputs, Task

PIXEL_MEAN: Final = (0.485, 0.456, 0.406)
PIXEL_STD: Final = (0.229, 0.224, 0.225)
"""Of the 0 to 1 range, as all Sapiens models were trained."""


class Encodings(NamedTuple):
    """Encodings of views, and of their mirror images where a task wants them."""

    plain: Encoding
    mirrored: Encoding | None


class _EncoderKey(NamedTuple):
    """What makes two tasks use one encoder."""

    digest: str
    rope_dtype: RopeDtype
    patch_padding: int


@dataclass(frozen=True, slots=True)
class Group:
    """Tasks that share one forward pass.

    Attributes:
        view_spec: The views they are about.
        encoder: The encoder.
        tasks: The tasks.
        heads: Their heads, of those that have one.
    """

    view_spec: ViewSpec
    encoder: Callable[..., Encoding]
    tasks: tuple[Task, ...]
    heads: Mapping[TaskName, Head]

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Where in the encoder some task needs tokens."""
        return tuple(sorted({stage for task in self.tasks for stage in task.stages}))

    @property
    def flip(self) -> bool:
        """Whether some task wants the mirrored views too."""
        return any(task.spec.flip_test for task in self.tasks)

    def encode(self, pixels: Tensor) -> Encodings:
        """Encode (n, 3, H, W) normalised views, once."""
        count = len(pixels)
        if self.flip:
            pixels = torch.cat([pixels, pixels.flip(-1)])
        encoding = self.encoder(pixels, self.stages)
        mirrored = encoding.select(count, 2 * count) if self.flip else None
        return Encodings(encoding.select(0, count), mirrored)

    def run_head(self, task: Task, encodings: Encodings) -> Outputs:
        """Raw outputs of one of the tasks, float32."""
        head = self.heads.get(task.name)
        if head is None:
            return Outputs(encodings.plain, None)
        output = _widened(head(encodings.plain.features))
        if task.spec.flip_test and encodings.mirrored is not None:
            mirrored = _widened(head(encodings.mirrored.features))
            output = task.merge_mirrored(output, mirrored)
        return Outputs(encodings.plain, output)


def load_groups(
    tasks: Mapping[TaskName, Task], *, device: torch.device, dtype: torch.dtype, compiled: bool
) -> list[Group]:
    """Load what the tasks need, each encoder once.

    Args:
        tasks: The tasks by name.
        device: Where the modules are to be.
        dtype: Their precision.
        compiled: Whether encoders go through `torch.compile`.

    Raises:
        WeightsError: When a checkpoint cannot be found or read, or does not fit.
    """
    encoders: dict[_EncoderKey, AnyEncoder] = {}
    members: dict[tuple[_EncoderKey, ViewSpec], list[Task]] = {}
    for task in tasks.values():
        checkpoint = task.checkpoint
        key = _EncoderKey(checkpoint.encoder_sha256, task.spec.rope_dtype, task.patch_padding)
        if key not in encoders:
            encoders[key] = load_encoder(
                checkpoint,
                rope_dtype=key.rope_dtype,
                patch_padding=key.patch_padding,
                device=device,
                dtype=dtype,
            )
        members.setdefault((key, task.view_spec), []).append(task)
    return [
        Group(
            view_spec,
            _compiled(encoders[key]) if compiled else encoders[key],
            tuple(group),
            _load_heads(group, device, dtype),
        )
        for (key, view_spec), group in members.items()
    ]


def _compiled(encoder: AnyEncoder) -> Callable[[Tensor, Collection[Stage]], Encoding]:
    from sapiens_batch.labeler.compiled import CompiledEncoder  # torch's compiler: 1.3 s of CPU

    return CompiledEncoder(encoder)


def _load_heads(
    tasks: Sequence[Task], device: torch.device, dtype: torch.dtype
) -> dict[TaskName, Head]:
    return {
        task.name: load_head(task.checkpoint, device=device, dtype=dtype)
        for task in tasks
        if task.head is not None
    }


class PixelNormaliser:
    """Brings uint8 canvases to a device as normalised pixels.

    Args:
        device: Where the pixels are wanted.
        dtype: In which precision.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device = device
        self._dtype = dtype
        shape = (1, 3, 1, 1)
        self._mean = torch.tensor(PIXEL_MEAN, device=device).view(shape)
        self._std = torch.tensor(PIXEL_STD, device=device).view(shape)

    def __call__(self, canvases: Array) -> Tensor:
        """(n, H, W, 3) uint8 on the host to (n, 3, H, W), channels last in memory."""
        # a copy, because torch refuses to read memory that is not writable, as Arrow's is
        host = torch.tensor(canvases)
        if self._device.type == "cuda":
            host = host.pin_memory()
        pixels = host.to(self._device, non_blocking=True).permute(0, 3, 1, 2)
        return pixels.float().div_(255).sub_(self._mean).div_(self._std).to(self._dtype)


def _widened(output: HeadOutput) -> HeadOutput:
    scale = None if output.scale is None else output.scale.float()
    return HeadOutput(output.maps.float(), scale)


@contextmanager
def exact_float32() -> Iterator[None]:
    """Convolutions in true float32: by default CUDA rounds their inputs to 10 bits (TF32)."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield
