"""Shards that are unlike the others."""

from __future__ import annotations

import numpy as np
import pytest

from sapiens_batch.report.drift import drift
from sapiens_batch.report.tally import Moments


def test_a_shard_far_from_the_mean_is_named() -> None:
    rng = np.random.default_rng(0)
    values = {f"{i:02d}": rng.normal(10, 1, 100) for i in range(20)}
    values["07"] = values["07"] + 2
    found = drift("size", {k: Moments.of(v) for k, v in values.items()}, {k: k for k in values})
    assert found is not None
    assert [one.shard for one in found.outliers] == ["07"]
    assert found.num_far == 1
    assert found.outliers[0].mean == pytest.approx(values["07"].mean())
    assert 1.5 < found.outliers[0].effect < 2


def test_z_is_the_deviation_in_standard_errors() -> None:
    shards = {"a": Moments.of(np.array([1.0, 3.0])), "b": Moments.of(np.array([5.0, 7.0]))}
    found = drift("m", shards, {"a": "first", "b": "second"})
    assert found is not None
    # mean 4, deviation sqrt(5), standard error sqrt(5 / 2)
    assert found.z == pytest.approx((-2 / np.sqrt(2.5), 2 / np.sqrt(2.5)))


def test_equal_values_do_not_drift() -> None:
    shards = {"a": Moments.of(np.full(50, 0.1)), "b": Moments.of(np.full(30, 0.1))}
    found = drift("m", shards, {"a": "a", "b": "b"})
    assert found is not None
    assert found.z == (0, 0)


def test_shards_are_in_the_order_of_their_names_and_may_lack_a_value() -> None:
    shards = {"x": Moments.of(np.array([1.0, 2.0])), "y": Moments.of(np.array([2.0, 3.0]))}
    found = drift("m", shards, {"x": "b.tar", "y": "a.tar", "z": "c.tar"})
    assert found is not None
    assert found.z[2] is None
    assert found.z[0] is not None and found.z[0] > 0


def test_one_shard_cannot_drift() -> None:
    assert drift("m", {"a": Moments.of(np.ones(3))}, {"a": "a"}) is None
