"""Labels as torch datasets: items, batches, and every sample once whoever reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from sapiens_batch.errors import InputError
from sapiens_batch.labelset import LabelSet, open_labels
from sapiens_batch.labelset.torch_dataset import collate
from sapiens_batch.storage import open_store
from tests.labelset.built_job import SHARDS, normal_row, seg_row, write_job

LABELED = [(shard, index) for shard in range(2) for index in (0, 2, 3, 4, 5)]


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> LabelSet:
    path: Path = tmp_path_factory.mktemp("job")
    write_job(open_store(str(path)))
    return open_labels(str(path))


def place(item: dict[str, object]) -> tuple[int, object]:
    return [shard.shard_id for shard in SHARDS].index(str(item["shard_id"])), item["index"]


def test_a_map_dataset_has_the_samples_that_have_every_label(labels: LabelSet) -> None:
    dataset = labels.to_torch(["seg", "normal", "embedding"])
    assert len(dataset) == 10  # type: ignore[arg-type]  # map-style datasets have a length
    item = dataset[7]
    assert place(item) == (1, 3)
    assert item["key"] == "k3"
    assert item["embedding"].dtype == torch.float16
    np.testing.assert_array_equal(item["seg"].numpy(), seg_row(1, 3))
    np.testing.assert_array_equal(item["normal"].numpy(), normal_row(1, 3))
    assert item["seg_size"].tolist() == [4, 3]
    assert item["seg_affine"].tolist() == [2, 2, 0.5, 0.5]


def test_arrays_are_cropped_or_drawn_in_source_pixels_on_request(labels: LabelSet) -> None:
    assert labels.to_torch(["normal"], size="frame")[0]["normal"].shape == (3, 4, 3)
    item = labels.to_torch(["normal"], size="source")[0]
    assert item["normal"].shape == (3, 8, 6)
    assert "normal_affine" not in item


def test_labels_of_persons_are_stacked(labels: LabelSet) -> None:
    dataset = labels.to_torch(["pose"], "key = 'k3' OR key = 'k2'")
    assert [dataset[n]["keypoints"].shape for n in range(2)] == [(0, 5, 2), (2, 5, 2)]
    assert dataset[1]["bbox"].shape == (2, 4)
    assert dataset[1]["person"].tolist() == [0, 1]


def test_a_loader_stacks_equal_shapes_and_lists_the_others(labels: LabelSet) -> None:
    loader = DataLoader(
        labels.to_torch(["seg", "pose"]), batch_size=5, collate_fn=collate, shuffle=False
    )
    batch = next(iter(loader))
    assert batch["seg"].shape == (5, 8, 6)
    assert [len(persons) for persons in batch["keypoints"]] == [1, 0, 2, 1, 1]
    assert batch["key"] == ["k0", "k2", "k3", "k4", "only-0"]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_stream_gives_every_sample_to_one_worker(labels: LabelSet, num_workers: int) -> None:
    stream = labels.to_torch_stream(["seg"])
    loader = DataLoader(stream, batch_size=None, num_workers=num_workers)
    found = [(place(item), item["seg"].numpy()) for item in loader]
    assert sorted(where for where, _ in found) == LABELED
    for (shard, index), seg in found:
        np.testing.assert_array_equal(seg, seg_row(shard, int(str(index))))


def test_a_stream_is_shuffled_by_its_seed_and_epoch(labels: LabelSet) -> None:
    def order(seed: int, epoch: int) -> list[tuple[int, object]]:
        stream = labels.to_torch_stream(["seg"], seed=seed)
        stream.epoch = epoch  # type: ignore[attr-defined]  # the attribute of our own stream
        return [place(item) for item in stream]

    orders = [order(1, epoch) for epoch in (0, 0, 1, 2, 3)]
    assert orders[0] == orders[1]
    assert len({tuple(one) for one in orders}) > 1
    assert all(sorted(one) == LABELED for one in orders)


def test_a_stream_takes_a_filter(labels: LabelSet) -> None:
    stream = labels.to_torch_stream(["seg"], f"shard_id = '{SHARDS[1].shard_id}' AND index > 3")
    assert [place(item) for item in stream] == [(1, 4), (1, 5)]


def test_a_task_that_the_job_does_not_have_is_refused(labels: LabelSet) -> None:
    with pytest.raises(InputError, match="has no task 'depth'; it has seg, normal"):
        labels.to_torch(["depth"])
