"""Rounding is no conflict, other labels are."""

from __future__ import annotations

import numpy as np
import pytest

from sapiens_batch.records import Array, ArrayField, LabelSchema, Level
from sapiens_batch.sinks import zarr
from sapiens_batch.stages.adopt import adopt

SHARD_ROWS = 8
FIELD = ArrayField((3, 8, 6), "float16", np.nan, ("channel", "y", "x"), "blosc", rows_per_sample=2)


def normals(seed: int, height: int = 8) -> Array:
    """Unit vectors on the first rows of a frame, fill below."""
    values = np.random.default_rng(seed).normal(size=(3, 8, 6))
    values /= np.linalg.norm(values, axis=0)
    values[:, height:] = np.nan
    return values.astype(np.float16)


def conflicts(stored: Array, own: Array, level: Level = Level.PERSON) -> frozenset[int]:
    schema = LabelSchema("normal", level, (), FIELD, {})
    encoded = zarr.encode_shard(FIELD, [2], stored[None], SHARD_ROWS)
    return adopt(schema, FIELD, [2], own[None], encoded, SHARD_ROWS).conflicts


def test_labels_that_differ_by_rounding_are_the_same() -> None:
    values = normals(1)
    noise = np.random.default_rng(2).normal(0, 1e-3, values.shape)
    assert conflicts(values, (values + noise).astype(np.float16)) == frozenset()


@pytest.mark.parametrize("other", [normals(2), normals(1, height=5), normals(2, height=2)])
def test_labels_of_somebody_else_or_on_another_frame_are_not(other: Array) -> None:
    assert conflicts(normals(1), other) == {1}


def test_rows_of_images_need_no_comparison() -> None:
    assert conflicts(normals(1), normals(2), Level.IMAGE) == frozenset()
