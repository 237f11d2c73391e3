"""Several labeled records of one chunk, put together as if it had been labeled in one go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from sapiens_batch.pipeline.cells import ChunkHeader, LabeledChunk, PreparedPerson, TaskRows
from sapiens_batch.records import Array, LabelSchema, Level, TaskLabels, TaskName


def join_chunks(
    header: ChunkHeader, schemas: Mapping[TaskName, LabelSchema], parts: Sequence[LabeledChunk]
) -> LabeledChunk:
    """The chunk that consists of some parts, in their order.

    Args:
        header: What the whole is about.
        schemas: Label schemas of the job.
        parts: Records of consecutive samples; one without a task has no labels of it.
    """
    first_samples = _starts([len(part.samples) for part in parts])
    first_persons = _starts([len(part.persons) for part in parts])
    persons: list[PreparedPerson] = []
    timings: Counter[str] = Counter()
    for part, first in zip(parts, first_samples, strict=True):
        persons += [replace(one, sample=first + one.sample) for one in part.persons]
        timings.update(part.timings_s)
    return LabeledChunk(
        header=header,
        samples=tuple(sample for part in parts for sample in part.samples),
        persons=tuple(persons),
        labels={
            task: _join_rows(
                schema,
                [part.labels.get(task) for part in parts],
                first_samples if schema.level is Level.IMAGE else first_persons,
            )
            for task, schema in schemas.items()
        },
        timings_s=dict(timings),
    )


def _join_rows(
    schema: LabelSchema, parts: Sequence[TaskRows | None], firsts: Sequence[int]
) -> TaskRows:
    found = [(part, first) for part, first in zip(parts, firsts, strict=True) if part is not None]
    labels = [part.labels for part, _ in found]
    columns = {
        one.name: _stack([made.columns[one.name] for made in labels], one.shape, one.dtype)
        for one in schema.columns
    }
    array = None
    if schema.array is not None:
        rows = [one.array for one in labels if one.array is not None]
        array = _stack(rows, schema.array.row_shape, schema.array.dtype)
    return TaskRows(
        TaskLabels(
            columns,
            array,
            tuple(frame for one in labels for frame in one.frames),
            tuple(problem for one in labels for problem in one.problems),
        ),
        tuple(first + row for part, first in found for row in part.rows),
    )


def _starts(lengths: Sequence[int]) -> list[int]:
    return [sum(lengths[:position]) for position in range(len(lengths))]


def _stack(parts: Sequence[Array], shape: tuple[int, ...], dtype: str) -> Array:
    empty: Array = np.empty((0, *shape), object if dtype == "string" else dtype)
    return np.concatenate([empty, *parts]) if parts else empty
