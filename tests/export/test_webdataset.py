"""WebDataset exports, read by `webdataset`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from sapiens_batch.labelset import LabelSet
from tests.conformance.exporter_contract import ExporterContract
from tests.export.conftest import NUM_LABELED, ExportTo

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
)


class TestWebDatasetContract(ExporterContract):
    format_name = "webdataset"
    changed: ClassVar[dict[str, Any]] = {"masks": False}


@pytest.fixture(scope="module")
def samples(export_to: ExportTo, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    import webdataset

    folder = export_to(
        tmp_path_factory.mktemp("webdataset"), "webdataset", normals=True, depth=True
    )
    shards = str(folder / "{000000..000002}.tar")
    return list(webdataset.WebDataset(shards, shardshuffle=False).decode("rgb8"))


def test_every_labeled_sample_comes_with_its_photo_and_labels(
    samples: list[dict[str, Any]],
) -> None:
    assert len(samples) == NUM_LABELED
    for sample in samples:
        height, width = sample["json"]["height"], sample["json"]["width"]
        assert sample["jpg"].shape == (height, width, 3)
        assert sample["seg.png"].shape[:2] == sample["depth.npy"].shape == (height, width)
        assert sample["keypoints.npy"].shape == (sample["json"]["num_persons"], 308, 3)
        assert sample["normal.npy"].shape[0] == 3


def test_labels_are_those_of_the_job(samples: list[dict[str, Any]], labels: LabelSet) -> None:
    for sample in samples[:4]:
        source = labels.sample(sample["json"]["key"])
        assert (sample["seg.png"][..., 0] == source.to_source("seg")).all()
        np.testing.assert_array_equal(sample["embedding.npy"], source.row["embedding"])
        for number, person in enumerate(source.persons):
            found = sample["keypoints.npy"][number]
            np.testing.assert_array_equal(found[:, :2], person["keypoints"])
            np.testing.assert_array_equal(found[:, 2], person["keypoint_scores"])
            box = sample["json"]["persons"][number]["bbox"]
            assert box == pytest.approx(person["bbox"].tolist())


def test_a_shard_without_a_chosen_sample_is_an_empty_tar(
    export_to: ExportTo, tmp_path: Path
) -> None:
    import webdataset

    folder = export_to(tmp_path, "webdataset", where="key = 'sample-000000'")
    assert [path.name for path in sorted(folder.glob("*.tar"))] == [
        "000000.tar", "000001.tar", "000002.tar",
    ]  # fmt: skip
    shards = str(folder / "{000000..000002}.tar")
    found = [one["__key__"] for one in webdataset.WebDataset(shards, shardshuffle=False)]
    assert found == ["sample-000000"]
