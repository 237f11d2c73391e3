"""FiftyOne exports, checked against its documented folder layout with the JSON reader it uses."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from bson import ObjectId, json_util
from PIL import Image

from sapiens_batch.labelset import LabelSet
from tests.conformance.exporter_contract import ExporterContract
from tests.export.conftest import ExportTo


class TestFiftyOneContract(ExporterContract):
    format_name = "fiftyone"
    changed: ClassVar[dict[str, Any]] = {"depth": False}


@pytest.fixture(scope="module")
def folder(export_to: ExportTo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_to(tmp_path_factory.mktemp("fiftyone"), "fiftyone", score_threshold=0.4)


@pytest.fixture(scope="module")
def samples(folder: Path) -> list[dict[str, Any]]:
    document = json_util.loads((folder / "samples.json").read_text())
    assert list(document) == ["samples"]
    found: list[dict[str, Any]] = document["samples"]
    return found


@pytest.fixture(scope="module")
def metadata(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json_util.loads((folder / "metadata.json").read_text())
    return found


def test_every_field_of_a_sample_is_declared(
    samples: list[dict[str, Any]], metadata: dict[str, Any]
) -> None:
    declared = {field["db_field"] for field in metadata["sample_fields"]}
    private = {"_media_type", "_rand"}  # FiftyOne keeps these without declaring them
    for sample in samples:
        assert set(sample) - private <= declared
        assert isinstance(sample["_id"], ObjectId)
    assert len({sample["_id"] for sample in samples}) == len(samples)


def test_the_dataset_says_its_version_so_that_fiftyone_can_bring_it_up_to_date(
    metadata: dict[str, Any],
) -> None:
    assert metadata["version"] == "0.23.8"
    assert metadata["media_type"] == "image"
    assert metadata["mask_targets"]["seg"]["3"] == "Face_Neck"
    assert metadata["info"]["sapiens_batch"]["spec_digest"] == "d" * 64


def test_media_and_masks_lie_where_the_samples_say(
    folder: Path, samples: list[dict[str, Any]]
) -> None:
    for sample in samples:
        with Image.open(folder / sample["filepath"]) as photo:
            size = photo.size
        with Image.open(folder / sample["seg"]["mask_path"]) as mask:
            assert (mask.size, mask.mode) == (size, "L")
        with Image.open(folder / sample["depth"]["map_path"]) as depth:
            assert depth.size == size
        assert (sample["metadata"]["width"], sample["metadata"]["height"]) == size


def test_coordinates_are_shares_of_the_image(
    samples: list[dict[str, Any]], labels: LabelSet
) -> None:
    sample = samples[0]
    source = labels.sample(sample["sapiens_key"])
    height, width = source.row["height"], source.row["width"]
    left, top, box_width, box_height = source.persons[0]["bbox"].astype(float)
    box = sample["persons"]["detections"][0]["bounding_box"]
    expected = [(left + 0.5) / width, (top + 0.5) / height, box_width / width, box_height / height]
    assert box == pytest.approx(expected)
    x, y = source.persons[0]["keypoints"][0].astype(float)
    point = sample["pose"]["keypoints"][0]["points"][0]
    assert point == pytest.approx([(x + 0.5) / width, (y + 0.5) / height], abs=1e-5)


def test_doubtful_points_are_nan_and_keep_their_confidence(
    samples: list[dict[str, Any]], labels: LabelSet
) -> None:
    for sample in samples[:5]:
        source = labels.sample(sample["sapiens_key"])
        for person, keypoint in zip(source.persons, sample["pose"]["keypoints"], strict=True):
            scores = person["keypoint_scores"]
            absent = [math.isnan(x) and math.isnan(y) for x, y in keypoint["points"]]
            missing = np.isnan(person["keypoints"]).any(axis=1)
            assert absent == ((scores < 0.4) | missing).tolist()
            assert keypoint["confidence"] == pytest.approx(scores.tolist(), abs=1e-4)


def test_the_skeleton_has_a_label_for_every_point(
    samples: list[dict[str, Any]], metadata: dict[str, Any]
) -> None:
    skeleton = metadata["skeletons"]["pose"]
    assert len(skeleton["labels"]) == 308 == len(samples[0]["pose"]["keypoints"][0]["points"])
    assert all(0 <= end < 308 for edge in skeleton["edges"] for end in edge)
