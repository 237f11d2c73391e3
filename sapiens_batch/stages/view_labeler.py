"""What labels views, and what its exceptions mean: shared by the actor and the isolated process.

Importing it imports no torch, so that the driver and the other stages can name it and stay light.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from sapiens_batch.models.memory import is_out_of_memory
from sapiens_batch.records import TaskLabels, TaskName, ViewBatch, ViewSpec
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.flow import LabeledChunk, PreparedChunk, TaskRows

DEVICE_LOST_STATUS = 86
"""Exit status of a process that gave up its device."""


class ViewLabeler(Protocol):
    """What labels views: a `labeler.Labeler`, or what a benchmark puts in its place."""

    def label(self, views: Mapping[ViewSpec, ViewBatch]) -> Mapping[TaskName, TaskLabels]:
        """Labels by task, one row per view of the task's spec, in the order of the batch."""
        ...


LoadLabeler = Callable[[JobContext, int | None], ViewLabeler]
"""Loads the models of a job; the second argument is the number of CPU threads, None to leave them
alone. Must be picklable: it runs in the actor."""


def load_labeler(context: JobContext, num_threads: int | None) -> ViewLabeler:
    """Load the models that a job's spec names.

    Raises:
        SapiensBatchError: A checkpoint or the device cannot be had.
    """
    from sapiens_batch.labeler import Labeler  # torch: in processes that label, and only there

    runtime = context.spec.runtime
    return Labeler.load(
        context.spec.tasks,
        checkpoints=context.checkpoints,
        device=runtime.device,
        dtype=runtime.dtype,
        batch_views=runtime.batch_views,
        num_threads=num_threads,
        compiled=runtime.compile,
    )


def label_views(chunk: PreparedChunk, context: JobContext, labeler: ViewLabeler) -> LabeledChunk:
    """Label the views of a prepared chunk."""
    started = time.perf_counter()
    labels = labeler.label(chunk.views)
    seconds = time.perf_counter() - started
    return LabeledChunk(
        header=chunk.header,
        samples=chunk.samples,
        persons=chunk.persons,
        labels={
            task: TaskRows(made, chunk.views[context.task_views[task]].rows)
            for task, made in labels.items()
        },
        timings_s={**chunk.timings_s, "label": seconds},
    )


def is_device_lost(error: Exception) -> bool:
    """Whether an exception leaves the process without its device.

    After an illegal access, an assertion or a hardware fault every later call fails as well.
    """
    text = str(error)
    return isinstance(error, RuntimeError) and "CUDA error" in text and not is_out_of_memory(error)
