"""A chunk that keeps failing, labeled sample by sample in a process that may die.

The process decodes and labels one sample at a time, on the device that the stage uses. A sample
that ends it twice, hangs it, or fails on its own becomes a quarantined row; the others get their
labels. Processes are reused from sample to sample, because loading models takes long, and replaced
when they die. What the process does is in `isolated_process`.

Invariant: the chunk leaves with as many samples as it came with (I1).
"""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
from dataclasses import replace
from typing import Any

from sapiens_batch.child.exchange import receive, send
from sapiens_batch.child.processes import end_process, ending, module_command, start_process
from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.records import Chunk, Problem, Sample, Status
from sapiens_batch.stages.flow import LabeledChunk, PreparedSample, SuspectChunk
from sapiens_batch.stages.isolated_process import READY, Setup
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
    header = replace(suspect.header, isolated=True)
    with contextlib.closing(_Worker(setup, timeout_s)) as worker:
        parts = [_label_sample(suspect.chunk, one, header, worker) for one in suspect.chunk.samples]
    return join_chunks(header, setup.context.schemas, parts)


def _label_sample(
    chunk: Chunk, sample: Sample, header: ChunkHeader, worker: _Worker
) -> LabeledChunk:
    answer = _label_alone(replace(chunk, start=sample.index, samples=(sample,)), worker)
    return _quarantined(header, sample, answer) if isinstance(answer, Problem) else answer


def _label_alone(chunk: Chunk, worker: _Worker) -> LabeledChunk | Problem:
    for _ in range(_TRIES - 1):
        answer = worker.label(chunk)
        if not isinstance(answer, Problem) or answer.reason != CRASH:
            return answer
    return worker.label(chunk)


def _quarantined(header: ChunkHeader, sample: Sample, problem: Problem) -> LabeledChunk:
    digest = None if sample.encoded is None else hashlib.sha256(sample.encoded).hexdigest()
    bare = replace(sample, encoded=None)
    row = PreparedSample(bare, Status.QUARANTINED, problem, content_sha256=digest)
    return LabeledChunk(header, (row,), (), {}, {})


class _Worker:
    """A process that labels single samples, started when there is none."""

    def __init__(self, setup: Setup, timeout_s: float) -> None:
        self._setup = setup
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    def label(self, chunk: Chunk) -> LabeledChunk | Problem:
        """Label the single sample of a chunk, or say what became of it."""
        (sample,) = chunk.samples
        process = self._process or self._start()
        try:
            answer: LabeledChunk | Problem = _ask(process, chunk, self._timeout_s)
        except TimeoutError:
            self.close()
            return Problem(
                TIMEOUT,
                f"{sample.key}: decoding and labeling it alone took more than "
                f"{self._timeout_s:g} s; raise errors.sample_timeout_s if it is sound, then retry",
            )
        except (EOFError, BrokenPipeError):
            how = ending(process)
            self.close()
            return Problem(
                CRASH, f"{sample.key}: decoding or labeling it alone ends its process ({how})"
            )
        return answer

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            end_process(process)

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = process = start_process(
            module_command("sapiens_batch.stages.isolated_process")
        )
        try:
            answer = _ask(process, self._setup, LOAD_TIMEOUT_S)
        except (EOFError, BrokenPipeError) as error:
            raise RuntimeError(
                f"the process for single samples does not start: {ending(process)}"
            ) from error
        if isinstance(answer, Exception):
            raise answer
        if answer != READY:
            raise RuntimeError("the process for single samples spoke out of turn")
        return process


def _ask(process: subprocess.Popen[bytes], message: object, timeout_s: float) -> Any:
    assert process.stdin is not None and process.stdout is not None
    send(process.stdin.fileno(), message)
    return receive(process.stdout.fileno(), timeout_s=timeout_s)
