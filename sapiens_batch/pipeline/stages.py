"""The stages as Ray calls them: one packed record in, one packed record out.

A stage never raises for trouble with its chunk: the failure travels on as an `Outcome`, reaches the
driver with its message, and the chunk is tried again in the next pass. What each stage does is in
`prepare`, `label` and `write`; models are not imported here, so that CPU workers stay light.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from sapiens_batch.pipeline.cells import Outcome, failure_of, pack, unpack
from sapiens_batch.pipeline.prepare import ChunkPreparer
from sapiens_batch.pipeline.write import ChunkWriter


def prepare_chunk(table: pa.Table, *, preparer: ChunkPreparer) -> pa.Table:
    """`Chunk` to `PreparedChunk`, in a CPU task."""
    return run_stage("prepare", table, preparer.prepare)


def write_chunk(table: pa.Table, *, writer: ChunkWriter) -> pa.Table:
    """`LabeledChunk` to `Outcome`, in a CPU task; the receipt makes the chunk done."""
    return run_stage("write", table, lambda chunk: Outcome(writer.write(chunk), None))


def run_stage(stage: str, table: pa.Table, work: Callable[[Any], Any]) -> pa.Table:
    """Do a stage's work on a packed record; an exception becomes an `Outcome` that travels on.

    Args:
        stage: Name of the stage, for the failure.
        table: One packed record with a `shard_id` and an `index` of its own or of its header.
        work: What to do with it.
    """
    record = unpack(table)
    if isinstance(record, Outcome):
        return table
    try:
        return pack(work(record))
    except Exception as error:  # the worker boundary: becomes data for the driver
        header = getattr(record, "header", record)
        return pack(Outcome(None, failure_of(error, header.shard_id, header.index, stage)))
