"""Several labeled records of one chunk, put together as if it had been labeled in one go.

Arrays of a chunk can be most of a node's memory, so the parts are given up as they are copied:
there is the whole, and one part more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.records import Array, LabelSchema, Level, TaskLabels, TaskName
from sapiens_batch.stages.flow import LabeledChunk, TaskRows


def join_chunks(
    header: ChunkHeader, schemas: Mapping[TaskName, LabelSchema], parts: list[LabeledChunk]
) -> LabeledChunk:
    """The chunk that consists of some parts, in their order.

    Args:
        header: What the whole is about.
        schemas: Label schemas of the job.
        parts: Records of consecutive samples; one without a task has no labels of it. The list is
            emptied, so that their arrays can go where nobody else holds them.
    """
    first_samples = _starts([len(part.samples) for part in parts])
    first_persons = _starts([len(part.persons) for part in parts])
    persons = tuple(
        replace(one, sample=first + one.sample)
        for part, first in zip(parts, first_samples, strict=True)
        for one in part.persons
    )
    timings_s = _sums([part.timings_s for part in parts])
    samples = tuple(sample for part in parts for sample in part.samples)
    rows = {task: [part.labels.get(task) for part in parts] for task in schemas}
    parts.clear()
    labels = {
        task: _join_rows(
            schema,
            rows.pop(task),
            first_samples if schema.level is Level.IMAGE else first_persons,
        )
        for task, schema in schemas.items()
    }
    return LabeledChunk(header, samples, persons, labels, timings_s)


def _join_rows(
    schema: LabelSchema, parts: list[TaskRows | None], firsts: Sequence[int]
) -> TaskRows:
    """The rows of one task; empties `parts`."""
    rows = tuple(
        first + row
        for part, first in zip(parts, firsts, strict=True)
        if part is not None
        for row in part.rows
    )
    labels = [part.labels for part in parts if part is not None]
    parts.clear()
    frames = tuple(frame for one in labels for frame in one.frames)
    problems = tuple(problem for one in labels for problem in one.problems)
    columns = {
        one.name: _stack([made.columns[one.name] for made in labels], one.shape, one.dtype)
        for one in schema.columns
    }
    arrays = [one.array for one in labels if one.array is not None]
    labels.clear()
    array = None
    if schema.array is not None:
        array = _stack(arrays, schema.array.row_shape, schema.array.dtype)
    return TaskRows(TaskLabels(columns, array, frames, problems), rows)


def _sums(timings_s: Sequence[Mapping[str, float]]) -> dict[str, float]:
    sums: Counter[str] = Counter()
    for one in timings_s:
        sums.update(one)
    return dict(sums)


def _starts(lengths: Sequence[int]) -> list[int]:
    return [sum(lengths[:position]) for position in range(len(lengths))]


def _stack(parts: list[Array], shape: tuple[int, ...], dtype: str) -> Array:
    """The rows of all parts; empties `parts`, each as it is copied."""
    stop = sum(map(len, parts))
    whole: Array = np.empty((stop, *shape), object if dtype == "string" else dtype)
    while parts:
        part = parts.pop()
        whole[stop - len(part) : stop] = part
        stop -= len(part)
    return whole
