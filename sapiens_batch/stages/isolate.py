"""A chunk that keeps failing, labeled sample by sample in a process that may die.

The process decodes and labels one sample at a time, on the device that the stage uses. A sample
that ends it twice, hangs it, or fails on its own becomes a quarantined row; the others get their
labels. A process is used for sample after sample, because loading models takes long, and replaced
when it dies; nothing else is at stake there.

Invariant: the chunk leaves with as many samples as it came with (I1).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from sapiens_batch.child.child import Child, DiedError, TimedOutError
from sapiens_batch.models.memory import is_out_of_memory
from sapiens_batch.records import Chunk, Problem
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.flow import LabeledChunk, SuspectChunk
from sapiens_batch.stages.join import join_chunks
from sapiens_batch.stages.prepare import ChunkPreparer, quarantined_row
from sapiens_batch.stages.view_labeler import (
    DEVICE_LOST_STATUS,
    LoadLabeler,
    ViewLabeler,
    is_device_lost,
    label_views,
)

CRASH = "crash"
TIMEOUT = "timeout"
OUT_OF_MEMORY = "oom"
FAILED = "label.failed"

LOAD_TIMEOUT_S = 1800.0
"""Seconds that loading the models may take, from a slow disk."""

_TRIES = 2
"""A process can also die of what an earlier sample did to it, or for want of memory: only a sample
that ends a fresh one as well is blamed."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What the process is started with.

    Attributes:
        context: The job.
        make_preparer: Makes what decodes samples and cuts views.
        load_labeler: Loads the models.
        num_threads: CPU threads for torch, or None to leave them alone.
    """

    context: JobContext
    make_preparer: Callable[[JobContext], ChunkPreparer]
    load_labeler: LoadLabeler
    num_threads: int | None


def isolate(suspect: SuspectChunk, setup: Setup, timeout_s: float) -> LabeledChunk:
    """Label a chunk sample by sample.

    Args:
        suspect: The chunk, with its encoded samples.
        setup: How the process prepares and labels.
        timeout_s: Seconds that one sample may take.

    Raises:
        SapiensBatchError: The models cannot be loaded; no sample is to blame for that.
        RuntimeError: The process does not start.
    """
    parts = []
    with closing(Child(partial(_start, setup), start_timeout_s=LOAD_TIMEOUT_S)) as child:
        for sample in suspect.chunk.samples:
            alone = replace(suspect.chunk, start=sample.index, samples=(sample,))
            answer = _label_alone(alone, child, timeout_s)
            if isinstance(answer, Problem):
                row = quarantined_row(sample, answer)
                answer = LabeledChunk(suspect.header, (row,), (), {}, {})
            parts.append(answer)
    return join_chunks(suspect.header, setup.context.schemas, parts)


def _label_alone(
    chunk: Chunk, child: Child[Chunk, LabeledChunk | Problem], timeout_s: float
) -> LabeledChunk | Problem:
    """Label the single sample of a chunk, or say what became of it."""
    (sample,) = chunk.samples
    for _ in range(_TRIES):
        try:
            return child.ask(chunk, timeout_s=timeout_s)
        except TimedOutError:
            return Problem(
                TIMEOUT,
                f"{sample.key}: decoding and labeling it alone took more than {timeout_s:g} s; "
                "raise errors.sample_timeout_s if it is sound, then retry",
            )
        except DiedError as death:
            how = str(death)
    return Problem(CRASH, f"{sample.key}: decoding or labeling it alone ends its process ({how})")


def _start(setup: Setup) -> Callable[[Chunk], Iterator[LabeledChunk | Problem]]:
    """Load what labels the single sample of a chunk, or says why it cannot be labeled."""
    preparer = setup.make_preparer(setup.context)
    preparer.load()  # later, its failure would be the sample's
    labeler = setup.load_labeler(setup.context, setup.num_threads)
    return partial(_label, setup.context, preparer, labeler)


def _label(
    context: JobContext, preparer: ChunkPreparer, labeler: ViewLabeler, chunk: Chunk
) -> Iterator[LabeledChunk | Problem]:
    (sample,) = chunk.samples
    try:
        yield label_views(preparer.prepare(chunk), context, labeler)
    except Exception as error:  # the worker boundary: becomes a row
        if is_device_lost(error):
            os._exit(DEVICE_LOST_STATUS)
        reason = OUT_OF_MEMORY if is_out_of_memory(error) else FAILED
        yield Problem(reason, f"{sample.key}: {type(error).__name__}: {error}")
