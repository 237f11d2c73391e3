"""Labels of many views as one record, and of some of them: putting together and taking apart.

What the values mean is left to the tasks. Arrays of a chunk can be most of a node's memory, so
parts are given up as they are copied: there is the whole, and one part more.
"""

from __future__ import annotations

import numpy as np

from sapiens_batch.records import Array, LabelSchema, TaskLabels


def join_labels(schema: LabelSchema, parts: list[TaskLabels]) -> TaskLabels:
    """Labels of consecutive views as one; no parts give labels of zero rows.

    Args:
        schema: Of the task.
        parts: The list is emptied, so that their arrays can go where nobody else holds them.
    """
    if len(parts) == 1:
        return parts.pop()
    frames = tuple(frame for part in parts for frame in part.frames)
    problems = tuple(problem for part in parts for problem in part.problems)
    columns = {
        one.name: _stack([part.columns[one.name] for part in parts], one.shape, one.dtype)
        for one in schema.columns
    }
    arrays = [part.array for part in parts if part.array is not None]
    parts.clear()
    array = None
    if schema.array is not None:
        array = _stack(arrays, schema.array.row_shape, schema.array.dtype)
    return TaskLabels(columns, array, frames, problems)


def label_rows(labels: TaskLabels, start: int, stop: int) -> TaskLabels:
    """Labels of views `[start, stop)`, without copying arrays."""
    return TaskLabels(
        {name: values[start:stop] for name, values in labels.columns.items()},
        None if labels.array is None else labels.array[start:stop],
        labels.frames[start:stop],
        labels.problems[start:stop],
    )


def _stack(parts: list[Array], shape: tuple[int, ...], dtype: str) -> Array:
    """The rows of all parts; empties `parts`, each as it is copied."""
    stop = sum(map(len, parts))
    whole: Array = np.empty((stop, *shape), object if dtype == "string" else dtype)
    while parts:
        part = parts.pop()
        whole[stop - len(part) : stop] = part
        stop -= len(part)
    return whole
