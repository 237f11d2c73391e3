"""The process in which suspect samples are labeled: one at a time, nothing else at stake.

Started by `isolate` as `python -m`, spoken to over standard input and output. It ends when its
input does, so it does not outlive the worker that started it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

from sapiens_batch.child.exchange import receive, send
from sapiens_batch.errors import SapiensBatchError
from sapiens_batch.models.memory import is_out_of_memory
from sapiens_batch.records import Chunk, Problem
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.flow import LabeledChunk
from sapiens_batch.stages.prepare import ChunkPreparer
from sapiens_batch.stages.view_labeler import (
    DEVICE_LOST_STATUS,
    LoadLabeler,
    ViewLabeler,
    is_device_lost,
    label_views,
)

READY = "ready"
OUT_OF_MEMORY = "oom"
FAILED = "label.failed"


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


def serve() -> None:
    """Answer requests from standard input on standard output until the input closes."""
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # what a library prints must not get between the answers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        setup: Setup = receive(requests)
        try:
            preparer = setup.make_preparer(setup.context)
            preparer.load()  # later, its failure would be the sample's
            labeler = setup.load_labeler(setup.context, setup.num_threads)
        except SapiensBatchError as error:
            send(answers, error)
            return
        send(answers, READY)
        while True:
            chunk: Chunk = receive(requests)
            send(answers, _label(chunk, setup.context, preparer, labeler))
    except (EOFError, BrokenPipeError):
        return


def _label(
    chunk: Chunk, context: JobContext, preparer: ChunkPreparer, labeler: ViewLabeler
) -> LabeledChunk | Problem:
    (sample,) = chunk.samples
    try:
        return label_views(preparer.prepare(chunk), context, labeler)
    except Exception as error:  # the worker boundary: becomes a row
        if is_device_lost(error):
            os._exit(DEVICE_LOST_STATUS)
        reason = OUT_OF_MEMORY if is_out_of_memory(error) else FAILED
        return Problem(reason, f"{sample.key}: {type(error).__name__}: {error}")


if __name__ == "__main__":
    serve()
