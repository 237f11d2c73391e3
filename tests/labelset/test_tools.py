"""The tables in the tools that people have: pandas, polars, DuckDB."""

from __future__ import annotations

import uuid

import numpy as np
import pytest

from sapiens_batch.labelset import LabelSet, open_labels
from sapiens_batch.storage import open_store
from tests.labelset.built_job import SHARDS, write_job


@pytest.fixture(scope="module")
def labels() -> LabelSet:
    uri = f"memory://{uuid.uuid4().hex}"
    write_job(open_store(uri))
    return open_labels(uri)


def test_pandas_takes_columns_and_rows(labels: LabelSet) -> None:
    frame = labels.images.to_table(columns=["key", "num_persons", "seg_affine"]).to_pandas()
    assert frame["num_persons"].sum() == 10
    np.testing.assert_array_equal(frame["seg_affine"][0], [2, 2, 0.5, 0.5])


def test_polars_scans_lazily(labels: LabelSet) -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = (
        polars.scan_pyarrow_dataset(labels.images)
        .filter(polars.col("num_persons") > 1)
        .select("key", "shard_id")
        .collect()
    )
    assert frame.rows() == [("k3", SHARDS[0].shard_id), ("k3", SHARDS[1].shard_id)]


def test_duckdb_joins_images_and_persons(labels: LabelSet) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    images = labels.images.to_table(columns=["key", "shard_id", "index", "height", "width"])
    with duckdb.connect() as connection:
        connection.register("images", images)
        connection.register("persons", labels.persons)
        found = connection.sql(
            "SELECT i.key, count(*) FROM images i JOIN persons p USING (shard_id, index) "
            "WHERE list_avg(p.keypoint_scores) >= 2 GROUP BY 1 ORDER BY 1"
        ).fetchall()
    assert found == [("k3", 2), ("k4", 2), ("only-0", 1), ("only-1", 1)]
