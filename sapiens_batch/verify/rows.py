"""What the rows of a shard's tables must say, beyond what sizes and checksums show.

Pure functions over tables; which of them to read, and what a finding is, is left to `shards`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sapiens_batch.records import Array, LabelSchema, Level, Status


def order_problems(level: Level, table: pa.Table, num_samples: int) -> Iterator[str]:
    """That rows of `images` count the samples, and rows of `persons` the persons in order."""
    index = table["index"].to_numpy()
    if level is Level.IMAGE:
        if not np.array_equal(index, np.arange(num_samples)):
            yield f"`index` does not count the {num_samples} samples"
        return
    if len(index) and not 0 <= index.min() <= index.max() < num_samples:
        yield f"`index` of some rows is none of the {num_samples} samples"
    step = np.diff(index)
    if not ((step > 0) | (step == 0) & (np.diff(table["person"].to_numpy()) > 0)).all():
        yield "rows repeat, or are not in the order of `index` and `person`"


def key_problems(images: pa.Table, persons: pa.Table) -> Iterator[str]:
    """That persons bear the key of their sample."""
    index = persons["index"].to_numpy()
    if len(index) and not 0 <= index.min() <= index.max() < images.num_rows:
        return  # found by `order_problems`
    if not pc.all(pc.equal(images["key"].take(persons["index"]), persons["key"])).as_py():
        yield "`key` of some persons is not their sample's"


def array_row_problems(schema: LabelSchema, table: pa.Table, root: str | None) -> Iterator[str]:
    """That each label points at its own row of the array, and says which part of it is valid.

    Args:
        schema: The task.
        table: The rows.
        root: The root of the task's array, None where the shard has none.
    """
    if schema.array is None:
        return
    labeled = pc.is_valid(table[f"{schema.task}_row"]).to_numpy(zero_copy_only=False)
    rows = table[f"{schema.task}_row"].drop_null().to_numpy()
    wrong = rows != _own_rows(schema.array.rows_per_sample, schema.level, table)[labeled]
    if wrong.any():
        yield f"`{schema.task}_row` of {int(wrong.sum())} rows is not their own"
    if set(table[f"{schema.task}_array"].drop_null().unique().to_pylist()) - {root}:
        yield f"`{schema.task}_array` of some rows is not {root}"
    for field in schema.row_columns[1:]:
        present = pc.is_valid(table[field.name]).to_numpy(zero_copy_only=False)
        if not np.array_equal(present, labeled):
            yield f"`{field.name}` is not given where `{schema.task}_row` is"
    for side, axis in (("height", "y"), ("width", "x")):
        limit = schema.array.row_shape[schema.array.dimension_names.index(axis)]
        values = table[f"{schema.task}_{side}"].drop_null().to_numpy()
        if len(values) and not 0 < values.min() <= values.max() <= limit:
            yield f"`{schema.task}_{side}` of some rows is not between 1 and {limit}"


def _own_rows(rows_per_sample: int, level: Level, table: pa.Table) -> Array:
    """(n,) array row of each row of a table; -1 for those that can have none."""
    index = table["index"].to_numpy()
    if level is Level.IMAGE:
        return index
    usable = np.array([status == Status.OK for status in table["status"].to_pylist()], bool)
    before = np.cumsum(usable) - usable
    first = np.searchsorted(index, index)  # of each sample's rows
    own: Array = index * rows_per_sample + before - before[first]
    return np.where(usable, own, -1)
