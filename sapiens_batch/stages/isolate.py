"""A chunk that keeps failing, labeled sample by sample in a process that may die.

The process decodes and labels one sample at a time, on the device that the stage uses. A sample
that ends it twice, hangs it, or fails on its own becomes a quarantined row; the others get their
labels. A process is used for sample after sample, because loading models takes long, and replaced
when it dies. What it does is in `isolated_process`.

Invariant: the chunk leaves with as many samples as it came with (I1).
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import replace
from functools import partial

from sapiens_batch.child.child import Child, DiedError, TimedOutError
from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.records import Chunk, Problem, Sample, Status
from sapiens_batch.stages.flow import LabeledChunk, PreparedSample, SuspectChunk
from sapiens_batch.stages.isolated_process import Setup, start_labeling
from sapiens_batch.stages.join import join_chunks

CRASH = "crash"
TIMEOUT = "timeout"

LOAD_TIMEOUT_S = 1800.0
"""Seconds that loading the models may take, from a slow disk."""

_TRIES = 2
"""A process can also die of what an earlier sample did to it, or for want of memory: only a sample
that ends a fresh one as well is blamed."""


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
    header = suspect.header
    child = Child(partial(start_labeling, setup), start_timeout_s=LOAD_TIMEOUT_S)
    parts = []
    with contextlib.closing(child):
        for sample in suspect.chunk.samples:
            alone = replace(suspect.chunk, start=sample.index, samples=(sample,))
            answer = _label_alone(alone, child, timeout_s)
            if isinstance(answer, Problem):
                answer = _quarantined(header, sample, answer)
            parts.append(answer)
    return join_chunks(header, setup.context.schemas, parts)


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
            how = death.how
    return Problem(CRASH, f"{sample.key}: decoding or labeling it alone ends its process ({how})")


def _quarantined(header: ChunkHeader, sample: Sample, problem: Problem) -> LabeledChunk:
    digest = None if sample.encoded is None else hashlib.sha256(sample.encoded).hexdigest()
    bare = replace(sample, encoded=None)
    row = PreparedSample(bare, Status.QUARANTINED, problem, content_sha256=digest)
    return LabeledChunk(header, (row,), (), {}, {})
