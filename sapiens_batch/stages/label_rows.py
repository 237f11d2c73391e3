"""The rows of one labeled chunk: an `images` and a `persons` table, and the rows of each array.

Every sample of the chunk gives exactly one `images` row (I1). A sample that turned out to be
quarantined keeps its row, loses its labels and its persons, and has no row in any array.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from sapiens_batch.records import (
    Array,
    ArrayField,
    ColumnField,
    LabelSchema,
    Level,
    Problem,
    Status,
    TaskName,
)
from sapiens_batch.sinks import parquet
from sapiens_batch.stages.flow import LabeledChunk, TaskRows


def settle(chunk: LabeledChunk, schemas: Mapping[TaskName, LabelSchema]) -> LabeledChunk:
    """Quarantine the samples whose image-level labels failed.

    Args:
        chunk: The labeled chunk.
        schemas: Label schemas of the job.
    """
    problems: dict[int, Problem] = {}
    for task, labeled in chunk.labels.items():
        if schemas[task].level is Level.IMAGE:
            for row, problem in zip(labeled.rows, labeled.labels.problems, strict=True):
                if problem is not None:
                    problems.setdefault(row, problem)
    samples = tuple(
        replace(sample, status=Status.QUARANTINED, problem=problems[position], num_persons=0)
        if position in problems and sample.status is not Status.QUARANTINED
        else sample
        for position, sample in enumerate(chunk.samples)
    )
    return replace(chunk, samples=samples)


def labeled_entries(chunk: LabeledChunk, schema: LabelSchema) -> list[int]:
    """Entries of a task's labels that are stored: no problem, and a sample that was kept."""
    labeled = chunk.labels[schema.task]
    return [
        entry
        for entry, (row, problem) in enumerate(
            zip(labeled.rows, labeled.labels.problems, strict=True)
        )
        if problem is None and _is_kept(chunk, schema.level, row)
    ]


def array_rows(chunk: LabeledChunk, schema: LabelSchema) -> tuple[list[int], Array]:
    """Rows in the chunk's outer shard and the data (n, *row_shape) of one task's array.

    Raises:
        ValueError: The task has no array.
    """
    labeled = chunk.labels[schema.task]
    if schema.array is None or labeled.labels.array is None:
        raise ValueError(f"task {schema.task} has no array")
    entries = labeled_entries(chunk, schema)
    first = chunk.header.start * schema.array.rows_per_sample
    rows = [row - first for row in _row_numbers(chunk, schema, schema.array, entries)]
    return rows, labeled.labels.array[entries]


def images_table(
    chunk: LabeledChunk, schemas: Mapping[TaskName, LabelSchema], schema: pa.Schema
) -> pa.Table:
    """One row for every sample of a settled chunk, in order.

    Args:
        chunk: The chunk, after `settle`.
        schemas: Label schemas of the job.
        schema: The pinned schema of the table.
    """
    header = chunk.header
    rows = chunk.samples
    columns: dict[str, Any] = {
        "key": [row.sample.key for row in rows],
        "shard_id": [header.shard_id] * len(rows),
        "index": [row.sample.index for row in rows],
        "status": [str(row.status) for row in rows],
        "reason": [row.problem.reason if row.problem else None for row in rows],
        "message": [row.problem.message if row.problem else None for row in rows],
        "height": [row.size[0] if row.size else None for row in rows],
        "width": [row.size[1] if row.size else None for row in rows],
        "orientation": [row.orientation for row in rows],
        "content_sha256": [row.content_sha256 for row in rows],
        "decoder": [row.decoder for row in rows],
        "animated": [row.animated for row in rows],
        "colour_profile": [row.colour_profile for row in rows],
        "num_persons": [row.num_persons for row in rows],
        "persons_truncated": [row.persons_truncated for row in rows],
    }
    for name in schema.names:
        if name not in columns and any(name in row.sample.extra for row in rows):
            columns[name] = [_text(row.sample.extra.get(name)) for row in rows]
    return _assemble(chunk, schemas, schema, Level.IMAGE, columns, range(len(rows)))


def persons_table(
    chunk: LabeledChunk, schemas: Mapping[TaskName, LabelSchema], schema: pa.Schema
) -> pa.Table:
    """One row for every person of the samples that were kept, in sample then person order."""
    kept = [i for i in range(len(chunk.persons)) if _is_kept(chunk, Level.PERSON, i)]
    persons = [chunk.persons[i] for i in kept]
    samples = [chunk.samples[person.sample].sample for person in persons]
    boxes = np.array([person.box for person in persons], np.float32).reshape(-1, 4)
    columns: dict[str, Any] = {
        "key": [sample.key for sample in samples],
        "shard_id": [chunk.header.shard_id] * len(persons),
        "index": [sample.index for sample in samples],
        "person": [person.person for person in persons],
        "bbox": pa.FixedSizeListArray.from_arrays(pa.array(boxes.ravel()), 4),
        "bbox_score": [person.score for person in persons],
        "status": [person.status for person in persons],
        "reason": [person.reason for person in persons],
    }
    return _assemble(chunk, schemas, schema, Level.PERSON, columns, kept)


def _assemble(
    chunk: LabeledChunk,
    schemas: Mapping[TaskName, LabelSchema],
    schema: pa.Schema,
    level: Level,
    columns: dict[str, Any],
    owners: Sequence[int],
) -> pa.Table:
    position = {owner: row for row, owner in enumerate(owners)}
    for label_schema in schemas.values():
        if label_schema.level is level:
            entries = labeled_entries(chunk, label_schema)
            labeled = chunk.labels[label_schema.task]
            rows = [position[labeled.rows[entry]] for entry in entries]
            for column, values in _task_values(chunk, label_schema, labeled, entries):
                columns[column.name] = _scatter(column, values, rows, len(owners))
    arrays = [
        _typed(columns[field.name], field.type)
        if field.name in columns
        else pa.nulls(len(owners), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _task_values(
    chunk: LabeledChunk, schema: LabelSchema, labeled: TaskRows, entries: Sequence[int]
) -> Iterator[tuple[ColumnField, Array]]:
    if schema.array is not None:
        frames = [labeled.labels.frames[entry] for entry in entries]
        row, _, height, width, affine = schema.row_columns
        yield row, np.array(_row_numbers(chunk, schema, schema.array, entries), np.int64)
        yield height, np.array([frame.height for frame in frames], np.int32)
        yield width, np.array([frame.width for frame in frames], np.int32)
        yield affine, np.array([f.to_source.as_row() for f in frames], np.float64).reshape(-1, 4)
    for column in schema.columns:
        yield column, np.asarray(labeled.labels.columns[column.name])[list(entries)]


def _row_numbers(
    chunk: LabeledChunk, schema: LabelSchema, array: ArrayField, entries: Sequence[int]
) -> list[int]:
    """Rows of some entries in the shard's array; they follow from the sample alone (I7)."""
    owners = [chunk.labels[schema.task].rows[entry] for entry in entries]
    if schema.level is Level.IMAGE:
        return [chunk.samples[owner].sample.index for owner in owners]
    places = _places(chunk)
    samples = [chunk.samples[chunk.persons[owner].sample].sample.index for owner in owners]
    return [
        index * array.rows_per_sample + places[owner]
        for index, owner in zip(samples, owners, strict=True)
    ]


def _places(chunk: LabeledChunk) -> list[int]:
    """For each person how many persons of its sample before it were not refused."""
    counts: Counter[int] = Counter()
    places = []
    for person in chunk.persons:
        places.append(counts[person.sample])
        counts[person.sample] += person.status == "ok"
    return places


def _scatter(
    column: ColumnField, values: Array, rows: Sequence[int], num_rows: int
) -> pa.Array[Any]:
    """Values (n, *shape) at `rows` of a column that is null elsewhere."""
    full = np.zeros((num_rows, *column.shape), np.dtype(column.dtype))
    full[list(rows)] = values
    present = np.zeros(num_rows, bool)
    present[list(rows)] = True
    return parquet.column_array(column, full, present)


def _typed(values: Any, kind: pa.DataType) -> pa.Array[Any]:
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _is_kept(chunk: LabeledChunk, level: Level, row: int) -> bool:
    sample = row if level is Level.IMAGE else chunk.persons[row].sample
    return chunk.samples[sample].status is not Status.QUARANTINED
