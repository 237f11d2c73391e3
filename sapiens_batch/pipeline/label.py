"""The labeling stage: an actor that holds the models of a job.

The only stage that uses torch, and it imports it late, so that the other stages and the driver can
name it and stay light. A model that cannot be loaded does not kill the actor, which Ray would
restart for ever: every chunk that reaches it fails with the reason instead. An actor whose device
is lost to it does end, because nothing else gives the device back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from sapiens_batch.errors import SapiensBatchError
from sapiens_batch.pipeline.attempts import AttemptLedger
from sapiens_batch.pipeline.cells import (
    LabeledChunk,
    PreparedChunk,
    SuspectChunk,
    TaskRows,
)
from sapiens_batch.pipeline.context import JobContext
from sapiens_batch.pipeline.faults import reach
from sapiens_batch.pipeline.stages import make_preparer, run_stage
from sapiens_batch.records import TaskLabels, TaskName, ViewBatch, ViewSpec

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
    )


class LabelChunk:
    """`PreparedChunk` or `SuspectChunk` to `LabeledChunk`.

    Args:
        context: The job.
        num_threads: CPU threads for torch, or None to leave them alone (on a GPU).
        load: Loads the models.
    """

    def __init__(self, context: JobContext, num_threads: int | None, load: LoadLabeler) -> None:
        self._context = context
        self._num_threads = num_threads
        self._load = load
        self._ledger = AttemptLedger(context.store, context.spec.errors.max_attempts)
        self._replaces_dead_actor = _replaces_dead_actor()
        self._num_chunks = 0
        self._loaded: ViewLabeler | SapiensBatchError
        try:
            self._loaded = load(context, num_threads)
        except SapiensBatchError as error:
            self._loaded = error

    def __call__(self, table: pa.Table) -> pa.Table:
        """Label one chunk."""
        limit = self._context.spec.runtime.actor_max_chunks
        if limit is not None and self._num_chunks >= limit:
            os._exit(0)  # Ray restarts the actor and hands it this chunk again
        self._num_chunks += 1
        return run_stage("label", table, self._label)

    def _label(self, chunk: PreparedChunk | SuspectChunk) -> LabeledChunk:
        if isinstance(chunk, PreparedChunk) and self._replaces_dead_actor:
            # the actor before this one may have died of the chunk; its mark then stands for that
            attempt = self._ledger.begin(chunk.header)
            header = replace(chunk.header, attempt=attempt.write_id)
            self._ledger.refuse_suspect(header, attempt)
            chunk = replace(chunk, header=header)
        with self._ledger.excusing(chunk.header):
            if isinstance(self._loaded, SapiensBatchError):
                raise self._loaded
            if isinstance(chunk, SuspectChunk):
                return self._isolate(chunk)
            reach("label")
            return self._label_whole(chunk, self._loaded)

    def _label_whole(self, chunk: PreparedChunk, labeler: ViewLabeler) -> LabeledChunk:
        try:
            return label_views(chunk, self._context, labeler)
        except Exception as error:
            if is_device_lost(error):
                os._exit(DEVICE_LOST_STATUS)
            if is_out_of_memory(error):
                _free_device_memory()
            raise

    def _isolate(self, chunk: SuspectChunk) -> LabeledChunk:
        from sapiens_batch.pipeline.isolate import isolate
        from sapiens_batch.pipeline.isolated_process import Setup

        setup = Setup(self._context, make_preparer, self._load, self._num_threads)
        return isolate(chunk, setup, self._context.spec.errors.sample_timeout_s)


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


def is_out_of_memory(error: Exception) -> bool:
    """Whether an exception says that host or device memory ran out."""
    return isinstance(error, MemoryError) or "out of memory" in str(error)


def is_device_lost(error: Exception) -> bool:
    """Whether an exception leaves the process without its device.

    After an illegal access, an assertion or a hardware fault every later call fails as well.
    """
    text = str(error)
    return isinstance(error, RuntimeError) and "CUDA error" in text and not is_out_of_memory(error)


def _free_device_memory() -> None:
    import torch

    torch.cuda.empty_cache()


def _replaces_dead_actor() -> bool:
    import ray

    context: Any = ray.get_runtime_context() if ray.is_initialized() else None
    return context is not None and bool(context.was_current_actor_reconstructed)
