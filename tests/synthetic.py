"""Labels without models: what a job does besides labeling, at a chosen pace, with chosen trouble.

The labels of a view follow from its pixels alone, so that two runs can be compared byte by byte.
"""

from __future__ import annotations

import io
import os
import signal
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from sapiens_batch.failpoints import DRIVER_VARIABLE
from sapiens_batch.records import (
    Affine,
    Array,
    Frame,
    LabelSchema,
    TaskLabels,
    TaskName,
    ViewBatch,
    ViewSpec,
)
from sapiens_batch.stages.context import JobContext

Colour = tuple[int, int, int]

KILLS: Colour = (255, 0, 0)
HANGS: Colour = (0, 0, 255)
FAILS: Colour = (0, 255, 0)
LOSES_DEVICE: Colour = (255, 0, 255)
"""Plain images of these colours make the labeler die, hang, or raise."""

ENDS_DRIVER: Colour = (255, 255, 0)
"""An image of this colour takes the job's driver with it, unless it is labeled alone."""

FRAME = Frame(2, 3, Affine(1.0, 1.0, 0.0, 0.0))


@dataclass(frozen=True)
class Synthetic:
    """Loads a `SyntheticLabeler`; picklable.

    Attributes:
        seconds: Time that a call takes, however many views it has.
        mended: A file; while it exists no colour means trouble.
    """

    seconds: float = 0.0
    mended: str = ""

    def __call__(self, context: JobContext, num_threads: int | None) -> SyntheticLabeler:
        return SyntheticLabeler(self, context)


class SyntheticLabeler:
    """Fills labels with a number that each view's pixels give."""

    def __init__(self, settings: Synthetic, context: JobContext) -> None:
        self._settings = settings
        self._context = context

    def label(self, views: Mapping[ViewSpec, ViewBatch]) -> dict[TaskName, TaskLabels]:
        started = time.monotonic()
        values = {
            spec: [self._value(batch, i) for i in range(len(batch))]
            for spec, batch in views.items()
        }
        labels = {
            task: _filled(schema, values[self._context.task_views[task]])
            for task, schema in self._context.schemas.items()
        }
        time.sleep(max(0.0, self._settings.seconds - (time.monotonic() - started)))
        return labels

    def _value(self, batch: ViewBatch, position: int) -> int:
        canvas = np.asarray(batch.canvases[position : position + 1])[0]
        middle = tuple(int(one) for one in canvas[canvas.shape[0] // 2, canvas.shape[1] // 2])
        if not (self._settings.mended and Path(self._settings.mended).exists()):
            _make_trouble(middle, alone=len(batch) == 1)
        return int(canvas[::64, ::64].sum(dtype=np.int64)) % 251


def _make_trouble(colour: tuple[int, ...], *, alone: bool) -> None:
    if colour == ENDS_DRIVER and not alone:
        os.kill(int(os.environ[DRIVER_VARIABLE]), signal.SIGKILL)
    if colour == KILLS or (colour == ENDS_DRIVER and not alone):
        os.kill(os.getpid(), signal.SIGKILL)
    if colour == HANGS:
        time.sleep(3600)
    if colour == FAILS:
        raise ValueError("this colour cannot be labeled")
    if colour == LOSES_DEVICE:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


def _filled(schema: LabelSchema, values: list[int]) -> TaskLabels:
    def fill(shape: tuple[int, ...], dtype: str) -> Array:
        numbers = np.array(values, np.int64).reshape(-1, *(1,) * len(shape))
        return np.broadcast_to(numbers, (len(values), *shape)).astype(dtype)

    array = None if schema.array is None else fill(schema.array.row_shape, schema.array.dtype)
    return TaskLabels(
        {column.name: fill(column.shape, column.dtype) for column in schema.columns},
        array,
        () if array is None else (FRAME,) * len(values),
        (None,) * len(values),
    )


def plain_image(colour: Colour) -> bytes:
    """A small PNG of one colour."""
    buffer = io.BytesIO()
    Image.new("RGB", (12, 16), colour).save(buffer, "PNG")
    return buffer.getvalue()


def write_shard(path: Path, images: Mapping[str, bytes]) -> None:
    """A tar of PNGs by key."""
    with tarfile.open(path, "w") as tar:
        for key, data in images.items():
            member = tarfile.TarInfo(f"{key}.png")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def write_corpus(folder: Path, num_shards: int, shard_samples: int) -> None:
    """Shards `000.tar` and so on, every image of its own shade of gray."""
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(num_shards):
        shades = [(1 + shard * shard_samples + i) % 250 for i in range(shard_samples)]
        images = {f"{shard:03}-{i:03}": plain_image((v, v, v)) for i, v in enumerate(shades)}
        write_shard(folder / f"{shard:03}.tar", images)
