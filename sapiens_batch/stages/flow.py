"""What travels between the stages, and how it becomes one row of one Ray block.

A span gives `PreparedChunk`s (or `SuspectChunk`s), a label actor turns each into an `Outcome`. A
record is one row, so work, attempts, stored objects and receipts coincide. Numpy arrays leave the
pickle out of band: they are copied once into the block and viewed, read-only, on the other side.
"""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sapiens_batch.errors import DamagedReceiptError, DependencyError, SpecError, WeightsError
from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.protocol.receipt import Receipt
from sapiens_batch.records import (
    Array,
    Chunk,
    Problem,
    Sample,
    Status,
    TaskLabels,
    TaskName,
    ViewBatch,
    ViewSpec,
)
from sapiens_batch.storage.addresses import public_text

_log = logging.getLogger(__name__)

_SCHEMA = pa.schema([("header", pa.large_binary()), ("buffers", pa.large_list(pa.large_binary()))])


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """A chunk as it was read.

    Attributes:
        header: What it is about.
        chunk: Its samples to label, encoded; some of the chunk's where the header names some.
    """

    header: ChunkHeader
    chunk: Chunk


@dataclass(frozen=True, slots=True)
class SuspectChunk:
    """A chunk that used up its attempts: its samples are to be labeled one by one.

    Attributes:
        header: What it is about.
        chunk: Its samples to label, encoded.
    """

    header: ChunkHeader
    chunk: Chunk


@dataclass(frozen=True, slots=True)
class PreparedSample:
    """One sample after decoding; what the `images` table says without labels.

    Attributes:
        sample: The sample without its encoded bytes.
        status: What is known so far; labeling may still quarantine it.
        problem: Why it is quarantined, else None.
        size: (height, width) after orientation, or None when it was not decoded.
        orientation: EXIF orientation 1 to 8 as stored, or None when it was not decoded.
        content_sha256: Hex digest of the encoded bytes, or None where there are none.
        num_persons: Persons that were kept.
        persons_truncated: Whether persons were dropped because there were too many, or None where
            none were asked for.
        decoder: Library that decoded it, or None when it was not decoded.
        animated: Whether the file holds further frames, or None when it was not decoded.
        colour_profile: What became of an embedded colour profile, or None when it was not decoded.
    """

    sample: Sample
    status: Status
    problem: Problem | None = None
    size: tuple[int, int] | None = None
    orientation: int | None = None
    content_sha256: str | None = None
    num_persons: int = 0
    persons_truncated: bool | None = None
    decoder: str | None = None
    animated: bool | None = None
    colour_profile: str | None = None


@dataclass(frozen=True, slots=True)
class PreparedPerson:
    """One person of a chunk.

    Attributes:
        sample: Position of the sample in the chunk.
        person: Number of the person in its sample, from 0.
        box: (4,) float32 COCO xywh in source pixels.
        score: Detection score, or None where there is none.
        status: `ok`, or `refused` for a box that no crop can be cut from.
        reason: Why it is refused; `person.invented` for a whole image in which nobody was found.
    """

    sample: int
    person: int
    box: Array
    score: float | None
    status: Literal["ok", "refused"] = "ok"
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PreparedChunk:
    """A decoded chunk: rows to be, and the views that the models need.

    Positions (of persons and in `ViewBatch.rows`) count the samples to label, which are those of
    the whole chunk unless the header names some.
    """

    header: ChunkHeader
    samples: tuple[PreparedSample, ...]
    persons: tuple[PreparedPerson, ...]
    views: Mapping[ViewSpec, ViewBatch]
    timings_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class TaskRows:
    """Labels of one task and whose they are.

    Attributes:
        labels: The labels, one entry per view.
        rows: Position of each entry's owner: sample in the chunk, or person in the chunk.
    """

    labels: TaskLabels
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LabeledChunk:
    """A labeled chunk, ready to be written."""

    header: ChunkHeader
    samples: tuple[PreparedSample, ...]
    persons: tuple[PreparedPerson, ...]
    labels: Mapping[TaskName, TaskRows]
    timings_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Failure:
    """Work that went wrong as a whole and will be tried again in the next pass.

    Attributes:
        shard_id: The shard it happened in.
        chunk: The chunk, or None when the shard could not be read on.
        stage: `read`, `prepare`, `label`, `seal`, or `graph` for Ray itself.
        message: Type and text of the exception.
        trace: Its traceback, for the log.
        in_setup: Whether the spec, the weights or what is installed is at fault, so that trying
            again mends nothing.
        suspect: Whether the chunk used up its attempts, so that its samples are to be labeled one
            by one.
        damaged: Whether a receipt is damaged or lost, so that the shard is to be labeled anew.
    """

    shard_id: str
    chunk: int | None
    stage: str
    message: str
    trace: str
    in_setup: bool = False
    suspect: bool = False
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What reaches the driver for each chunk: its receipt, or why there is none."""

    receipt: Receipt | None
    failure: Failure | None


def failure_of(error: Exception, shard_id: str, chunk: int | None, stage: str) -> Failure:
    """Turn an exception of a stage into data for the driver, without secrets of addresses."""
    trace = public_text("".join(traceback.format_exception(error)))
    _log.debug("%s failed: %s", stage, trace)
    return Failure(
        shard_id,
        chunk,
        stage,
        public_text(f"{type(error).__name__}: {error}"),
        trace,
        in_setup=isinstance(error, SpecError | WeightsError | DependencyError),
        damaged=isinstance(error, DamagedReceiptError),
    )


def distinct(failures: Sequence[Failure]) -> list[Failure]:
    """Failures without those that say the same."""
    return list({(failure.stage, failure.message): failure for failure in failures}.values())


def pack(record: Any) -> pa.Table:
    """Put one record into a table of one row."""
    arrays: list[pickle.PickleBuffer] = []
    header = pickle.dumps(record, protocol=5, buffer_callback=arrays.append)
    views = [np.frombuffer(array.raw(), dtype=np.uint8) for array in arrays]
    offsets = np.cumsum([0, *(len(view) for view in views)], dtype=np.int64)
    data = np.concatenate(views) if views else np.empty(0, np.uint8)
    contents = [None, pa.py_buffer(offsets.data), pa.py_buffer(data.data)]
    cells = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(views), contents)
    buffers = pa.LargeListArray.from_arrays(pa.array([0, len(views)], pa.int64()), cells)
    return pa.Table.from_arrays(
        [pa.array([header], pa.large_binary()), buffers],
        schema=_SCHEMA,
    )


def unpack(table: pa.Table) -> Any:
    """Take the record out of a table of one row; its arrays are read-only views of the block.

    Raises:
        ValueError: The table does not have exactly one row.
    """
    if table.num_rows != 1:
        raise ValueError(f"a block must hold one record, found {table.num_rows} rows")
    header = table.column("header")[0].as_py()
    (rows,) = table.column("buffers").chunks
    cells = pc.list_flatten(rows)
    _, starts, contents = cells.buffers()
    offsets = np.frombuffer(memoryview(starts or b""), dtype=np.int64)[cells.offset :]
    data = memoryview(contents or b"").toreadonly()
    views = [data[offsets[i] : offsets[i + 1]] for i in range(len(cells))]
    return pickle.loads(header, buffers=views)
