"""Several labeled records of one chunk, put together as if it had been labeled in one go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sapiens_batch.labels import join_labels
from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.records import LabelSchema, Level, TaskName
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
    return TaskRows(join_labels(schema, labels), rows)


def _sums(timings_s: Sequence[Mapping[str, float]]) -> dict[str, float]:
    sums: Counter[str] = Counter()
    for one in timings_s:
        sums.update(one)
    return dict(sums)


def _starts(lengths: Sequence[int]) -> list[int]:
    return [sum(lengths[:position]) for position in range(len(lengths))]
