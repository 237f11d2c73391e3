"""Labels as training code takes them: one flat mapping of arrays for each sample.

The form that torch and Ray datasets share, and how samples are split among their readers. Turning
arrays into tensors is left to those. Each wanted sample is in exactly one span of samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow.dataset as ds

from sapiens_batch.errors import InputError
from sapiens_batch.labelset.filters import Filter, as_expression
from sapiens_batch.labelset.sample import SampleLabels
from sapiens_batch.records import Array, LabelSchema, Level

if TYPE_CHECKING:
    from sapiens_batch.labelset.labels import LabelSet

Size = Literal["stored", "frame", "source"]
Item = dict[str, Any]


class Span(NamedTuple):
    """Samples `[start, stop)` of one shard: what one reader reads in one go."""

    shard_id: str
    start: int
    stop: int


def labeled_rows(labels: LabelSet, tasks: Sequence[str], wanted: Filter | None) -> ds.Expression:
    """Which rows of `images` have every image-level label of some tasks, and pass a filter.

    Raises:
        InputError: The job has no such task, or the text is no filter.
    """
    for task in tasks:
        if task not in labels.schemas:
            raise InputError(
                f"job {labels.job.name!r} has no task {task!r}; it has {', '.join(labels.schemas)}"
            )
    expression = as_expression(wanted, labels.images.schema)
    found = ds.field("status") != "quarantined"
    for task in tasks:
        schema = labels.schemas[task]
        if schema.level is Level.IMAGE:
            found = found & ds.field(schema.table_columns[0].name).is_valid()
    return found if expression is None else found & expression


def spans(labels: LabelSet, wanted: ds.Expression, num_readers: int) -> list[Span]:
    """Shards cut at stored objects into runs, at least four for each reader where there are enough.

    Shards that the filter rules out are left out.
    """
    shard_ids = labels.shard_ids(wanted)
    runs_per_shard = max(1, -(-4 * num_readers // max(1, len(shard_ids))))
    found = []
    for shard_id in shard_ids:
        commit = labels.commits[shard_id]
        starts = [chunk.start for chunk in commit.chunks]
        step = max(1, -(-len(starts) // runs_per_shard))
        cuts = [*starts[::step], commit.num_samples]
        found += [Span(shard_id, *run) for run in pairwise(cuts)]
    return found


def span_items(
    labels: LabelSet, span: Span, tasks: Sequence[str], wanted: ds.Expression, size: Size
) -> Iterator[Item]:
    """Items of the wanted samples of a span, in stored order."""
    index = ds.field("index")
    inside = (ds.field("shard_id") == span.shard_id) & (index >= span.start) & (index < span.stop)
    for sample in labels.samples(inside & wanted):
        yield sample_item(sample, tasks, size)


def sample_item(sample: SampleLabels, tasks: Sequence[str], size: Size) -> Item:
    """One sample as a flat mapping.

    Args:
        sample: A sample with every image-level label of the tasks.
        tasks: Which labels.
        size: `stored`: arrays of one shape, fill beyond the frame. `frame`: cropped to the frame.
            `source`: in source pixels.

    Returns:
        `key`, `shard_id`, `index`; by column name, label columns of images; by task, arrays, with
        `<task>_affine` (4,) and `<task>_size` (2,) for `stored` and `frame`. Labels of persons have
        P as first axis, frames of persons are a list of P arrays, and they come with `bbox` (P, 4)
        and `person` (P,); a person that lacks a label of a task is left out of all.
    """
    item: Item = {name: sample.row[name] for name in ("key", "shard_id", "index")}
    schemas = [sample.schemas[task] for task in tasks]
    for schema in schemas:
        if schema.level is Level.IMAGE:
            item |= _labels(sample, schema, sample.row, None, size)
    of_persons = [schema for schema in schemas if schema.level is Level.PERSON]
    if of_persons:
        item |= _persons(sample, of_persons, size)
    return item


def _persons(sample: SampleLabels, schemas: Sequence[LabelSchema], size: Size) -> Item:
    needed = [schema.table_columns[0].name for schema in schemas]
    rows = [row for row in sample.persons if all(row[name] is not None for name in needed)]
    each = [
        {
            name: value
            for schema in schemas
            for name, value in _labels(sample, schema, row, row["person"], size).items()
        }
        for row in rows
    ]
    item: Item = {}
    for name, empty in _no_person(sample, schemas, size).items():
        values = [one[name] for one in each]
        item[name] = values if empty is None else np.stack(values) if values else empty
    item["person"] = np.array([row["person"] for row in rows], np.int32)
    item["bbox"] = np.array([row["bbox"] for row in rows], np.float32).reshape(-1, 4)
    return item


def _no_person(
    sample: SampleLabels, schemas: Sequence[LabelSchema], size: Size
) -> dict[str, Array | None]:
    """What `_labels` gives for each person, for P = 0; None for frames, which are a list."""
    found: dict[str, Array | None] = {}
    for schema in schemas:
        for column in schema.columns:
            found[column.name] = np.empty((0, *column.shape), column.dtype)
        if schema.array is not None:
            shape = schema.array.row_shape
            if size == "source":
                shape = (*shape[:-2], sample.row["height"], sample.row["width"])
            else:
                found[f"{schema.task}_affine"] = np.empty((0, 4), np.float64)
                found[f"{schema.task}_size"] = np.empty((0, 2), np.int32)
            empty = np.empty((0, *shape), schema.array.dtype)
            found[schema.task] = None if size == "frame" else empty
    return found


def _labels(
    sample: SampleLabels,
    schema: LabelSchema,
    row: Mapping[str, Any],
    person: int | None,
    size: Size,
) -> dict[str, Array]:
    found = {
        column.name: np.asarray(row[column.name])
        for column in schema.columns
        if row[column.name] is not None
    }
    if schema.array is None:
        return found
    task = schema.task
    if size == "source":
        values = sample.to_source(task, person)
    elif size == "frame":
        values = sample.array(task, person)
    else:
        values = sample.arrays[task].row(row["shard_id"], row[f"{task}_row"])
    assert values is not None, "the row of the table says that it is labeled"
    found[task] = values
    if size != "source":
        found[f"{task}_affine"] = row[f"{task}_affine"]
        found[f"{task}_size"] = np.array([row[f"{task}_height"], row[f"{task}_width"]], np.int32)
    return found
