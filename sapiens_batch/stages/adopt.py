"""An array object that an earlier attempt at a chunk left: which samples may point at its rows.

Objects keep the name that Zarr gives them, so a later attempt cannot store its own. A row of an
image can only be that image's. Which person has which row follows from what a detector found, and
another CPU, or another version of a library, may find them in another order or one fewer: there the
rows must be the labels that this attempt made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sapiens_batch.records import Array, ArrayField, LabelSchema, Level
from sapiens_batch.sinks import zarr

# Two attempts differ by rounding; two persons differ by much more.
_SAME_SHARE = 0.95
_RELATIVE, _ABSOLUTE = 0.05, 0.01


class Adopted(NamedTuple):
    """What an object is good for.

    Attributes:
        num_rows: Rows that it holds.
        conflicts: Samples that cannot use it, counted from the first of the chunk.
    """

    num_rows: int
    conflicts: frozenset[int]


def adopt(
    schema: LabelSchema,
    field: ArrayField,
    rows: Sequence[int],
    data: Array,
    encoded: bytes,
    shard_rows: int,
) -> Adopted:
    """Compare an object with what this attempt would have stored.

    Args:
        schema: The task.
        field: Its array.
        rows: n rows of the chunk's outer shard.
        data: (n, *row_shape) labels for them.
        encoded: The object.
        shard_rows: Rows of a whole shard.

    Raises:
        ValueError: The object is damaged.
    """
    present = zarr.present_rows(encoded, shard_rows)
    conflicts = {row // field.rows_per_sample for row in rows if not present[row]}
    if schema.level is Level.PERSON:
        own = dict(zip(rows, data, strict=True))
        samples = {row // field.rows_per_sample for row in rows}
        for row, stored in zarr.decode_rows(field, encoded, shard_rows):
            sample = row // field.rows_per_sample
            if sample in samples and not _is_same(field, stored, own.get(row)):
                conflicts.add(sample)
    return Adopted(sum(present), frozenset(conflicts))


def _is_same(field: ArrayField, one: Array, other: Array | None) -> bool:
    if other is None:
        return False
    labeled = zarr.is_labeled(field, one) | zarr.is_labeled(field, other)
    a, b = one[labeled].astype(np.float32), other[labeled].astype(np.float32)
    is_class = field.codec == "zstd"
    same = a == b if is_class else np.isclose(a, b, rtol=_RELATIVE, atol=_ABSOLUTE)
    return not same.size or float(same.mean()) >= _SAME_SHARE
