"""The labeling stage: an actor that holds the models of a job.

The only stage that uses torch, and it imports it late, so that the other stages and the driver can
name it and stay light. A model that cannot be loaded does not kill the actor, which Ray would
restart for ever: every chunk that reaches it fails with the reason instead. An actor whose device
is lost to it does end, because nothing else gives the device back.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pyarrow as pa

from sapiens_batch.errors import SapiensBatchError
from sapiens_batch.failpoints import reach
from sapiens_batch.stages.attempts import AttemptLedger
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.flow import LabeledChunk, PreparedChunk, SuspectChunk
from sapiens_batch.stages.isolate import isolate
from sapiens_batch.stages.isolated_process import Setup
from sapiens_batch.stages.stage import make_preparer, run_stage
from sapiens_batch.stages.view_labeler import (
    DEVICE_LOST_STATUS,
    LoadLabeler,
    ViewLabeler,
    is_device_lost,
    is_out_of_memory,
    label_views,
)


class LabelChunk:
    """`PreparedChunk` or `SuspectChunk` to `LabeledChunk`.

    Args:
        context: The job.
        num_threads: CPU threads for torch, or None to leave them alone (on a GPU).
        load: Loads the models.
        ledger: Counts the attempts; that of the run, which outlives the actor.
    """

    def __init__(
        self,
        context: JobContext,
        num_threads: int | None,
        load: LoadLabeler,
        ledger: AttemptLedger,
    ) -> None:
        self._context = context
        self._num_threads = num_threads
        self._load = load
        self._ledger = ledger
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
        if isinstance(chunk, SuspectChunk):
            chunk = replace(chunk, header=self._ledger.begin_isolated(chunk.header))
        elif self._replaces_dead_actor:
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
        setup = Setup(self._context, make_preparer, self._load, self._num_threads)
        return isolate(chunk, setup, self._context.spec.errors.sample_timeout_s)


def _free_device_memory() -> None:
    import torch

    torch.cuda.empty_cache()


def _replaces_dead_actor() -> bool:
    import ray

    context: Any = ray.get_runtime_context() if ray.is_initialized() else None
    return context is not None and bool(context.was_current_actor_reconstructed)
