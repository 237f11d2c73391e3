"""Labeled chunks without models: small tasks whose values tell which row they belong to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.protocol.seal import SealJob
from sapiens_batch.records import (
    Affine,
    ArrayField,
    ColumnField,
    Frame,
    LabelSchema,
    Level,
    Problem,
    Sample,
    Shard,
    Status,
    TaskLabels,
)
from sapiens_batch.sinks.tables import ParquetTables
from sapiens_batch.stages.flow import LabeledChunk, PreparedPerson, PreparedSample, TaskRows
from sapiens_batch.storage import Store

SHARD = Shard("ab" * 16, "000.tar", "file:///in/000.tar", "10-1", 10)
CHUNK_SAMPLES = 4
SEG = LabelSchema(
    "seg",
    Level.IMAGE,
    (ColumnField("seg_class_pixels", "int32", (2,)),),
    ArrayField((2, 3), "uint8", 255, ("y", "x"), "zstd"),
    {},
)
POSE = LabelSchema(
    "pose",
    Level.PERSON,
    (
        ColumnField("keypoints", "float32", (2, 2), "px"),
        ColumnField("keypoint_scores", "float32", (2,)),
    ),
    None,
    {},
)
SCHEMAS = {"seg": SEG, "pose": POSE}
FRAME = Frame(2, 3, Affine(2.0, 2.0, 0.5, 0.5))


def seal_job(store: Store) -> SealJob:
    """How shards of these tasks are sealed."""
    tables = ParquetTables(list(SCHEMAS.values()))
    return SealJob(store, SCHEMAS, "0" * 64, CHUNK_SAMPLES, tables)


MakeChunk = Callable[..., LabeledChunk]


def labeled_chunk(
    persons: Sequence[int | None],
    *,
    index: int = 0,
    last: bool = True,
    seg_problems: Sequence[Problem | None] | None = None,
    first: int | None = None,
) -> LabeledChunk:
    """A chunk of samples with the given numbers of persons; None is a quarantined sample.

    The first sample is that of the chunk, unless another one is given.
    """
    start = index * CHUNK_SAMPLES if first is None else first
    samples = tuple(sample(start + i, count) for i, count in enumerate(persons))
    found = tuple(
        PreparedPerson(i, number, np.array([i, number, 10, 20], np.float32), None)
        for i, count in enumerate(persons)
        for number in range(count or 0)
    )
    rows = tuple(i for i, count in enumerate(persons) if count is not None)
    return LabeledChunk(
        ChunkHeader(SHARD.shard_id, index, start, start + len(samples), last),
        samples,
        found,
        {
            "seg": TaskRows(seg_labels(start, rows, seg_problems), rows),
            "pose": TaskRows(pose_labels(len(found)), tuple(range(len(found)))),
        },
        {"label": 0.5},
    )


def sample(index: int, persons: int | None) -> PreparedSample:
    bare = Sample(f"key-{index}", index, None)
    if persons is None:
        problem = Problem("decode.truncated", f"key-{index} ends early")
        return PreparedSample(bare, Status.QUARANTINED, problem)
    status = Status.OK if persons else Status.EMPTY
    return PreparedSample(bare, status, None, (20, 30), 1, "0" * 64, persons)


def seg_labels(
    start: int, rows: Sequence[int], problems: Sequence[Problem | None] | None
) -> TaskLabels:
    values = np.array([start + row for row in rows], np.uint8)
    return TaskLabels(
        {"seg_class_pixels": np.stack([values, values], axis=1).astype(np.int32).reshape(-1, 2)},
        np.broadcast_to(values[:, None, None], (len(rows), 2, 3)).copy(),
        (FRAME,) * len(rows),
        tuple(problems) if problems else (None,) * len(rows),
    )


def pose_labels(count: int) -> TaskLabels:
    values = np.arange(count, dtype=np.float32)
    return TaskLabels(
        {
            "keypoints": np.broadcast_to(values[:, None, None], (count, 2, 2)).copy(),
            "keypoint_scores": np.broadcast_to(values[:, None], (count, 2)).copy(),
        },
        None,
        (),
        (None,) * count,
    )
