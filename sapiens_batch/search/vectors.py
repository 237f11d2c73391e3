"""The embeddings of a job as unit vectors with the places they belong to.

Samples without a finite embedding are left out: nothing is near them. Building an index of the
vectors is left to `cells`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from sapiens_batch.errors import InputError
from sapiens_batch.labelset import LabelSet
from sapiens_batch.records import Array
from sapiens_batch.sinks.parquet import column_values

DEFAULT_COLUMN: Final = "embedding"

_PLACES = {"key": pa.string(), "shard_id": pa.string(), "index": pa.int64()}
PLACE_SCHEMA: Final = pa.schema([pa.field(*one, nullable=False) for one in _PLACES.items()])


class Vectors(NamedTuple):
    """Unit vectors and where they come from.

    Attributes:
        places: `key`, `shard_id`, `index`, one row for each vector.
        values: (n, C) float32, of unit length.
    """

    places: pa.Table
    values: Array


def dimension(labels: LabelSet, column: str) -> int:
    """Length of the vectors in a column of `images`.

    Raises:
        InputError: The job has no such column, or it holds no vectors.
    """
    schema = labels.images.schema
    vectors = [
        field.name
        for field in schema
        if pa.types.is_fixed_size_list(field.type) and pa.types.is_floating(field.type.value_type)
    ]
    if column not in vectors:
        raise InputError(
            f"job {labels.job.name!r} has no column of vectors {column!r} in `images`; it has "
            f"{', '.join(vectors) or 'none'}: label the corpus with the task `embedding`, without "
            "`region: person`"
        )
    return int(schema.field(column).type.list_size)


def read_vectors(labels: LabelSet, shard_ids: Iterable[str], column: str) -> Vectors:
    """The vectors of some shards, in stored order."""
    names = [*PLACE_SCHEMA.names, column]
    places = [PLACE_SCHEMA.empty_table()]
    values = [np.empty((0, dimension(labels, column)), np.float32)]
    for shard_id in shard_ids:
        rows = labels.shard_rows(shard_id, columns=names)
        if not rows.num_rows:
            continue
        found, present = column_values(rows[column])
        unit, usable = as_unit(found)
        usable &= present
        places.append(rows.filter(pa.array(usable)).select(PLACE_SCHEMA.names).cast(PLACE_SCHEMA))
        values.append(unit[usable])
    return Vectors(pa.concat_tables(places).combine_chunks(), np.concatenate(values))


def as_unit(vectors: Array) -> tuple[Array, Array]:
    """(n, C) float32 vectors of unit length, and (n,) bool: which of them have a direction."""
    precise = np.asarray(vectors, np.float32)
    length = np.linalg.norm(precise, axis=1)
    usable: Array = np.isfinite(length) & (length > 0)
    unit: Array = precise / np.where(usable, length, 1)[:, None]
    return unit, usable
