"""Hugging Face exports, loaded by `datasets` from the local folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import yaml

from sapiens_batch.labelset import LabelSet
from tests.conformance.exporter_contract import ExporterContract
from tests.export.conftest import NUM_LABELED, ExportTo

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class TestHuggingFaceContract(ExporterContract):
    format_name = "huggingface"
    changed: ClassVar[dict[str, Any]] = {"split": "test"}


@pytest.fixture(scope="module")
def folder(export_to: ExportTo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_to(tmp_path_factory.mktemp("huggingface"), "huggingface")


@pytest.fixture(scope="module")
def dataset(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    patch = pytest.MonkeyPatch()
    patch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    datasets.disable_progress_bars()
    cache = tmp_path_factory.mktemp("cache")
    yield datasets.load_dataset(str(folder), split="train", cache_dir=str(cache))
    patch.undo()


def test_images_come_back_as_images_of_the_labeled_size(dataset: Any) -> None:
    assert len(dataset) == NUM_LABELED
    for row in dataset.select(range(4)):
        size = (row["width"], row["height"])
        assert row["image"].size == row["seg"].size == row["depth"].size == size
        assert row["image"].mode == "RGB"


def test_labels_are_those_of_the_job(dataset: Any, labels: LabelSet) -> None:
    row = dataset[5]
    sample = labels.sample(row["key"])
    assert (np.array(row["seg"]) == sample.to_source("seg")).all()
    np.testing.assert_array_equal(np.array(row["embedding"], np.float32), sample.row["embedding"])
    assert len(row["persons"]) == len(sample.persons)
    for found, person in zip(row["persons"], sample.persons, strict=True):
        points = np.array(found["keypoints"], np.float32)
        np.testing.assert_array_equal(points, person["keypoints"])
        assert found["bbox"] == person["bbox"].tolist()


def test_the_depth_is_in_millimetres(dataset: Any, labels: LabelSet) -> None:
    row = dataset[0]
    points = labels.sample(row["key"]).to_source("pointmap")
    assert points is not None
    depth = np.array(row["depth"]).astype(float)
    known = np.isfinite(points[2])
    # the job stores float16, whose steps are about 2 mm at 2 m
    np.testing.assert_allclose(depth[known], points[2][known].astype(float) * 1000, atol=2)


def test_the_card_tells_data_files_models_and_licences(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    head = yaml.safe_load(text.split("---")[1])
    assert head["configs"][0]["data_files"] == [{"split": "train", "path": "data/train-*.parquet"}]
    assert "keypoint-detection" in head["task_categories"]
    assert "| pose | drawn-0.1b |" in text
    assert "drawn-0.1b: CC0-1.0" in text
