"""What runs in the process in which suspect samples are labeled: one at a time.

Started and asked by `isolate`. Nothing else is at stake there: it may die, or give up its device.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

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


def start_labeling(setup: Setup) -> Callable[[Chunk], Iterator[LabeledChunk | Problem]]:
    """Load what labels the single sample of a chunk, or says why it cannot be labeled.

    Raises:
        SapiensBatchError: The models cannot be loaded; no sample is to blame for that.
    """
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
