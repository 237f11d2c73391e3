"""The stages as Ray calls them: one packed record in, one packed record out.

A stage never raises for trouble with its chunk: the failure travels on as an `Outcome`, reaches the
driver with its message, and the chunk is tried again in the next pass. What each stage does is in
`prepare`, `label` and `write`; models are not imported here, so that CPU workers stay light.

Every stage records its attempt in the ledger. A chunk that used up its attempts is handed on
undecoded, as a `SuspectChunk`; a stage that cannot do that refuses it until the next pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from sapiens_batch.failpoints import reach
from sapiens_batch.persons import make_person_finder
from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.stages.attempts import AttemptLedger
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.flow import (
    LabeledChunk,
    Outcome,
    PreparedChunk,
    ReadChunk,
    SuspectChunk,
    failure_of,
    pack,
    unpack,
)
from sapiens_batch.stages.prepare import ChunkPreparer
from sapiens_batch.stages.write import ChunkWriter


def make_preparer(context: JobContext) -> ChunkPreparer:
    """What decodes the samples of a job and cuts the views that it needs."""
    finder = (
        make_person_finder(context.spec.persons_section, context.detector_digest)
        if context.finds_persons
        else None
    )
    return ChunkPreparer(finder, context.view_specs, context.spec.decode)


def prepare_chunk(table: pa.Table, *, preparer: ChunkPreparer, ledger: AttemptLedger) -> pa.Table:
    """`ReadChunk` to `PreparedChunk` or `SuspectChunk`, in a CPU task."""
    return run_stage("prepare", table, partial(_prepare, preparer, ledger))


def write_chunk(table: pa.Table, *, writer: ChunkWriter, ledger: AttemptLedger) -> pa.Table:
    """`LabeledChunk` to `Outcome`, in a CPU task; the receipt makes the chunk done."""
    return run_stage("write", table, partial(_write, writer, ledger))


def run_stage(stage: str, table: pa.Table, work: Callable[[Any], Any]) -> pa.Table:
    """Do a stage's work on a packed record; an exception becomes an `Outcome` that travels on.

    Args:
        stage: Name of the stage, for the failure.
        table: One packed record with a header.
        work: What to do with it.
    """
    record = unpack(table)
    if isinstance(record, Outcome):
        return table
    try:
        return pack(work(record))
    except Exception as error:  # the worker boundary: becomes data for the driver
        header: ChunkHeader = record.header
        return pack(Outcome(None, failure_of(error, header.shard_id, header.index, stage)))


def _prepare(
    preparer: ChunkPreparer, ledger: AttemptLedger, read: ReadChunk
) -> PreparedChunk | SuspectChunk:
    attempt = ledger.begin(read.header)
    header = replace(read.header, attempt=attempt.write_id)
    if ledger.is_suspect(attempt):
        return SuspectChunk(header, read.chunk)
    with ledger.excusing(header):
        reach("prepare")
        return replace(preparer.prepare(read.chunk), header=header)


def _write(writer: ChunkWriter, ledger: AttemptLedger, chunk: LabeledChunk) -> Outcome:
    header = _begin_write(ledger, chunk.header)
    with ledger.excusing(header):
        receipt = writer.write(replace(chunk, header=header))
    ledger.end(header)
    return Outcome(receipt, None)


def _begin_write(ledger: AttemptLedger, header: ChunkHeader) -> ChunkHeader:
    if header.isolated:
        return ledger.begin_isolated(header)
    attempt = ledger.begin(header, taken_over=header.attempt)
    header = replace(header, attempt=attempt.write_id)
    ledger.refuse_suspect(header, attempt)
    return header
