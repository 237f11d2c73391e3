"""The labeling stage: an actor that holds the models of a job.

The only stage that imports torch. A model that cannot be loaded does not kill the actor, which Ray
would restart for ever: every chunk that reaches it fails with the reason instead.
"""

from __future__ import annotations

import time

import pyarrow as pa

from sapiens_batch.errors import SapiensBatchError
from sapiens_batch.labeler import Labeler
from sapiens_batch.pipeline.cells import LabeledChunk, PreparedChunk, TaskRows
from sapiens_batch.pipeline.context import JobContext
from sapiens_batch.pipeline.stages import run_stage


class LabelChunk:
    """`PreparedChunk` to `LabeledChunk`.

    Args:
        context: The job.
        num_threads: CPU threads for torch, or None to leave them alone (on a GPU).
    """

    def __init__(self, context: JobContext, num_threads: int | None) -> None:
        self._views = context.task_views
        self._loaded: Labeler | SapiensBatchError
        runtime = context.spec.runtime
        try:
            self._loaded = Labeler.load(
                context.spec.tasks,
                checkpoints=context.checkpoints,
                device=runtime.device,
                dtype=runtime.dtype,
                batch_views=runtime.batch_views,
                num_threads=num_threads,
            )
        except SapiensBatchError as error:
            self._loaded = error

    def __call__(self, table: pa.Table) -> pa.Table:
        """Label one chunk."""
        return run_stage("label", table, self._label)

    def _label(self, chunk: PreparedChunk) -> LabeledChunk:
        if isinstance(self._loaded, SapiensBatchError):
            raise self._loaded
        started = time.perf_counter()
        labels = self._loaded.label(chunk.views)
        seconds = time.perf_counter() - started
        return LabeledChunk(
            header=chunk.header,
            samples=chunk.samples,
            persons=chunk.persons,
            labels={
                task: TaskRows(made, chunk.views[self._views[task]].rows)
                for task, made in labels.items()
            },
            timings_s={**chunk.timings_s, "label": seconds},
        )
