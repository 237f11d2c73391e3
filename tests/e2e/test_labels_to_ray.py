"""Labels as a Ray dataset: read by the cluster's tasks, every sample once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sapiens_batch.labelset import open_labels
from sapiens_batch.storage import open_store
from tests.labelset.built_job import SHARDS, seg_row, write_job

pytestmark = pytest.mark.usefixtures("ray_cluster")


@pytest.mark.slow
def test_a_ray_dataset_has_a_row_for_every_labeled_sample(tmp_path: Path) -> None:
    write_job(open_store(str(tmp_path)))
    dataset = open_labels(str(tmp_path)).to_ray(["seg", "pose"], "num_persons > 0")
    rows = sorted(dataset.take_all(), key=lambda row: (row["shard_id"], row["index"]))
    numbers = {shard.shard_id: number for number, shard in enumerate(SHARDS)}
    places = [(numbers[row["shard_id"]], row["index"]) for row in rows]
    assert places == [(shard, index) for shard in range(2) for index in (0, 3, 4, 5)]
    for (shard, index), row in zip(places, rows, strict=True):
        np.testing.assert_array_equal(row["seg"], seg_row(shard, index))
    assert [len(row["keypoints"]) for row in rows] == [1, 2, 1, 1] * 2
