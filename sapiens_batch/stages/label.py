"""The second stage: an actor that holds the models of a job, labels chunks and stores them.

It takes three chunks at a time: one on the device, one being encoded and stored, one waiting. A
model that cannot be loaded does not kill the actor, which Ray would restart for ever: every chunk
that reaches it fails with the reason instead. An actor whose device is lost to it does end, because
nothing else gives the device back.

Attempts are counted when a chunk gets the device. One that was begun before has the actor to
itself, so that a chunk that ends its actor makes no neighbour suspect; one that used up its
attempts is sent back, and comes again as a `SuspectChunk`.

Torch is imported late, so that the other stages and the driver can name this one and stay light.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pyarrow as pa

from sapiens_batch.errors import SapiensBatchError
from sapiens_batch.failpoints import reach
from sapiens_batch.models.memory import is_out_of_memory
from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.protocol.receipt import Receipt
from sapiens_batch.stages.attempts import (
    Attempts,
    IsolationError,
    Work,
    chunk_work,
    describe,
)
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.device import Device
from sapiens_batch.stages.failures import suspect_chunk
from sapiens_batch.stages.flow import (
    LabeledChunk,
    Outcome,
    PreparedChunk,
    SuspectChunk,
    failure_of,
    pack,
    unpack,
)
from sapiens_batch.stages.isolate import Setup, isolate
from sapiens_batch.stages.preparer import make_preparer
from sapiens_batch.stages.view_labeler import (
    DEVICE_LOST_STATUS,
    LoadLabeler,
    ViewLabeler,
    is_device_lost,
    label_views,
)
from sapiens_batch.stages.write import ChunkWriter

STORE_THREADS = 4
"""Arrays are encoded and put side by side; beyond the arrays of two chunks more threads idle."""


class LabelChunk:
    """`PreparedChunk` or `SuspectChunk` to `Outcome`; called from several threads at once.

    Args:
        context: The job.
        num_threads: CPU threads for torch, or None to leave them alone (on a GPU).
        load: Loads the models.
        attempts: Counts attempts, for the whole run.
    """

    def __init__(
        self,
        context: JobContext,
        num_threads: int | None,
        load: LoadLabeler,
        attempts: Attempts,
    ) -> None:
        self._context = context
        self._num_threads = num_threads
        self._load = load
        self._attempts = attempts
        self._max_attempts = context.spec.errors.max_attempts
        self._writer = ChunkWriter(
            context.store,
            context.schemas,
            context.spec.source.columns,
            context.chunk_samples,
            ThreadPoolExecutor(STORE_THREADS, thread_name_prefix="store"),
        )
        self._device = Device()
        self._num_chunks = 0
        self._ended: deque[Work] = deque()
        self._loaded: ViewLabeler | SapiensBatchError
        try:
            self._loaded = load(context, num_threads)
        except SapiensBatchError as error:
            self._loaded = error

    def __call__(self, table: pa.Table) -> pa.Table:
        """Label and store one chunk; its outcome, also where it failed."""
        record = unpack(table)
        if isinstance(record, Outcome):
            return table
        header: ChunkHeader = record.header
        try:
            label = self._isolate if isinstance(record, SuspectChunk) else self._label
            return pack(label(record))
        except Exception as error:  # the worker boundary: becomes data for the driver
            failure = failure_of(error, header.shard_id, header.index, "label")
            return pack(Outcome(None, failure))

    def _label(self, chunk: PreparedChunk) -> Outcome:
        header, work = chunk.header, chunk_work(chunk.header)
        with ExitStack() as storing:
            with self._device.taken():
                labeler = self._ready()
                num_before = self._begin(work)
                if num_before:
                    self._device.wait_for_storing()
                    if (outcome := self._settled(header, num_before)) is not None:
                        return outcome
                try:
                    labeled = self._label_whole(chunk, labeler)
                    if num_before:
                        return self._store(labeled)
                except Exception as error:
                    return self._failed(error, header, num_before)
                storing.enter_context(self._device.storing())
            try:
                return self._store(labeled)
            except Exception as error:
                return self._failed(error, header, num_before)

    def _ready(self) -> ViewLabeler:
        """The models; ends the actor where it has labeled as many chunks as it may."""
        limit = self._context.spec.runtime.actor_max_chunks
        if limit is not None and self._num_chunks >= limit:
            self._device.wait_for_storing()
            os._exit(0)  # Ray restarts the actor and hands it what it has not answered again
        self._num_chunks += 1
        if isinstance(self._loaded, SapiensBatchError):
            raise self._loaded
        return self._loaded

    def _begin(self, work: Work) -> int:
        """Count an attempt; tells of those that came through on the way."""
        ended = [self._ended.popleft() for _ in range(len(self._ended))]
        return self._attempts.begin(work, ended)

    def _settled(self, header: ChunkHeader, num_before: int) -> Outcome | None:
        """What became of a chunk that was begun before, or None where it is to be labeled."""
        receipt = self._writer.stored(header)
        if receipt is not None:  # who stored it died before it could say so
            return self._came_through(receipt)
        if num_before < self._max_attempts:
            return None
        self._attempts.excuse(chunk_work(header))
        return Outcome(None, suspect_chunk(header, num_before))

    def _label_whole(self, chunk: PreparedChunk, labeler: ViewLabeler) -> LabeledChunk:
        reach("label")
        try:
            return label_views(chunk, self._context, labeler)
        except Exception as error:
            if is_device_lost(error):
                self._device.wait_for_storing()
                os._exit(DEVICE_LOST_STATUS)
            if is_out_of_memory(error):
                _free_device_memory()
            raise

    def _store(self, chunk: LabeledChunk) -> Outcome:
        return self._came_through(self._writer.write(chunk))

    def _came_through(self, receipt: Receipt) -> Outcome:
        self._ended.append(Work(receipt.shard_id, receipt.generation, receipt.chunk))
        return Outcome(receipt, None)

    def _failed(self, error: Exception, header: ChunkHeader, num_before: int) -> Outcome:
        """The outcome of an attempt that was counted; taken back where it does not count."""
        failure = failure_of(error, header.shard_id, header.index, "label")
        if isinstance(error, SapiensBatchError):
            self._attempts.excuse(chunk_work(header))
        else:
            failure = replace(failure, suspect=num_before + 1 >= self._max_attempts)
        return Outcome(None, failure)

    def _isolate(self, suspect: SuspectChunk) -> Outcome:
        """Label a chunk sample by sample, with the actor to itself."""
        work = chunk_work(suspect.header)
        with self._device.taken():
            self._ready()
            self._device.wait_for_storing()
            num_before = self._attempts.begin_isolated(work, self._max_attempts)
            if num_before >= self._max_attempts:
                raise IsolationError(
                    f"{describe(suspect.header)}: labeling its samples one by one ended "
                    f"{num_before} workers in this run, most likely for want of memory. Run again "
                    "on nodes with more memory, or label into another output.uri with a smaller "
                    "output.chunk_samples or persons.max_persons"
                )
            try:
                setup = Setup(self._context, make_preparer, self._load, self._num_threads)
                timeout_s = self._context.spec.errors.sample_timeout_s
                return self._store(isolate(suspect, setup, timeout_s))
            finally:
                self._attempts.end_isolated(work)


def _free_device_memory() -> None:
    import torch

    torch.cuda.empty_cache()
