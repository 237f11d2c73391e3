"""COCO exports, loaded and evaluated by pycocotools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from sapiens_batch.labelset import LabelSet
from tests.conformance.exporter_contract import ExporterContract
from tests.export.conftest import ExportTo

# pycocotools has not met numpy 2's copies
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class TestCocoContract(ExporterContract):
    format_name = "coco"
    changed: ClassVar[dict[str, Any]] = {"score_threshold": 0.5}


@pytest.fixture(scope="module")
def folder(export_to: ExportTo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_to(tmp_path_factory.mktemp("coco"), "coco", score_threshold=0.4)


@pytest.fixture(scope="module")
def keypoints(folder: Path) -> COCO:
    return COCO(str(folder / "annotations/person_keypoints.json"))


def test_every_labeled_image_is_there_once_with_its_own_key(
    keypoints: COCO, labels: LabelSet
) -> None:
    table = labels.images.to_table(columns=["key", "status"]).to_pydict()
    labeled = [
        key
        for key, status in zip(table["key"], table["status"], strict=True)
        if status != "quarantined"
    ]
    images = keypoints.loadImgs(keypoints.getImgIds())
    assert sorted(image["key"] for image in images) == sorted(labeled)
    assert {image["status"] for image in images} == {"ok", "empty"}


def test_points_under_the_threshold_are_not_labeled_and_the_others_are_visible(
    keypoints: COCO, labels: LabelSet
) -> None:
    annotation = keypoints.loadAnns(keypoints.getAnnIds())[0]
    image = keypoints.loadImgs(annotation["image_id"])[0]
    person = labels.sample(image["key"]).persons[annotation["person"]]
    triples = np.array(annotation["keypoints"]).reshape(-1, 3)
    scores, xy = person["keypoint_scores"], person["keypoints"]
    limits = np.array([image["width"], image["height"]]) - 0.5
    inside = ((xy >= -0.5) & (xy <= limits)).all(axis=1)
    assert (triples[:, 2] == np.where((scores >= 0.4) & inside, 2, 0)).all()
    assert (triples[triples[:, 2] == 0] == 0).all()
    seen = triples[:, 2] == 2
    np.testing.assert_allclose(triples[seen, :2], xy[seen], atol=0.0051)
    assert annotation["num_keypoints"] == seen.sum() > 100


def test_the_threshold_and_the_model_are_recorded(keypoints: COCO) -> None:
    info = keypoints.dataset["info"]
    assert info["score_threshold"] == 0.4
    assert info["sapiens_batch"]["spec_digest"] == "d" * 64
    assert "drawn-0.1b" in info["description"]


def test_the_results_evaluate_to_a_finite_average_precision(folder: Path, keypoints: COCO) -> None:
    results = keypoints.loadRes(str(folder / "results/person_keypoints.json"))
    evaluation = COCOeval(keypoints, results, "keypoints")
    evaluation.params.kpt_oks_sigmas = np.array(keypoints.dataset["info"]["sigmas"])
    assert _average_precision(evaluation) > 0.95


def test_the_body_subset_is_coco_s_own_seventeen_points(
    export_to: ExportTo, tmp_path: Path, labels: LabelSet
) -> None:
    folder = export_to(tmp_path, "coco", keypoints="body17", masks=False)
    dataset = COCO(str(folder / "annotations/person_keypoints.json"))
    category = dataset.loadCats([1])[0]
    assert category["keypoints"][9:13] == ["left_wrist", "right_wrist", "left_hip", "right_hip"]
    assert [16, 14] in category["skeleton"]
    annotation = dataset.loadAnns(dataset.getAnnIds())[0]
    image = dataset.loadImgs(annotation["image_id"])[0]
    person = labels.sample(image["key"]).persons[0]
    left_hip = np.array(annotation["keypoints"][33:36])
    expected = person["keypoints"][9]  # index 9 of the 308 is the left hip
    assert left_hip[2] == 0 or np.allclose(left_hip[:2], expected, atol=0.0051)
    results = dataset.loadRes(str(folder / "results/person_keypoints.json"))
    evaluation = COCOeval(dataset, results, "keypoints")
    assert _average_precision(evaluation) > 0.95
    assert not (folder / "annotations/instances.json").exists()


def test_an_instance_is_the_foreground_in_the_person_s_box(folder: Path, labels: LabelSet) -> None:
    instances = COCO(str(folder / "annotations/instances.json"))
    annotations = instances.loadAnns(instances.getAnnIds())
    assert len(annotations) > 10
    for annotation in annotations[:6]:
        image = instances.loadImgs(annotation["image_id"])[0]
        sample = labels.sample(image["key"])
        parts = sample.to_source("seg")
        assert parts is not None
        left, top, width, height = sample.persons[annotation["person"]]["bbox"]
        y, x = np.mgrid[: parts.shape[0], : parts.shape[1]]
        boxed = (x >= left) & (x <= left + width) & (y >= top) & (y <= top + height)
        expected = boxed & (parts != 0) & (parts != 255)
        assert (instances.annToMask(annotation).astype(bool) == expected).all()
        assert annotation["area"] == expected.sum()


def test_instances_found_again_have_an_average_precision_of_one(folder: Path) -> None:
    instances = COCO(str(folder / "annotations/instances.json"))
    found = [{**one, "score": 0.9} for one in instances.loadAnns(instances.getAnnIds())]
    evaluation = COCOeval(instances, instances.loadRes(found), "segm")
    assert _average_precision(evaluation) == pytest.approx(1.0)


def test_panoptic_colours_are_the_ids_of_the_segments(folder: Path, labels: LabelSet) -> None:
    document = json.loads((folder / "annotations/panoptic.json").read_text())
    names = {one["id"]: one["name"] for one in document["categories"]}
    assert names[3] == "Face_Neck"
    images = {one["id"]: one for one in document["images"]}
    for annotation in document["annotations"][:4]:
        with Image.open(folder / "annotations/panoptic" / annotation["file_name"]) as image:
            colours = np.array(image).astype(int)
        ids = colours[..., 0] + 256 * colours[..., 1] + 65536 * colours[..., 2]
        parts = labels.sample(images[annotation["image_id"]]["key"]).to_source("seg")
        assert parts is not None
        assert (ids == np.where(parts == 255, 0, parts)).all()
        areas = {one["id"]: one["area"] for one in annotation["segments_info"]}
        assert areas == {number: int((ids == number).sum()) for number in np.unique(ids[ids > 0])}


def test_ids_do_not_depend_on_what_is_chosen(
    folder: Path, export_to: ExportTo, tmp_path: Path
) -> None:
    fewer = export_to(tmp_path, "coco", where="num_persons >= 2", masks=False, score_threshold=0.4)
    all_of_them = _by_id(folder / "annotations/person_keypoints.json", "annotations")
    chosen = _by_id(fewer / "annotations/person_keypoints.json", "annotations")
    assert 0 < len(chosen) < len(all_of_them)
    assert all(all_of_them[number] == one for number, one in chosen.items())


def test_photos_are_copied_where_asked_for(export_to: ExportTo, tmp_path: Path) -> None:
    folder = export_to(tmp_path, "coco", pictures=True, masks=False, where="num_persons >= 2")
    document = json.loads((folder / "annotations/person_keypoints.json").read_text())
    for image in document["images"]:
        with Image.open(folder / "images" / image["file_name"]) as photo:
            assert photo.size == (image["width"], image["height"])


def _by_id(path: Path, name: str) -> dict[int, Any]:
    return {one["id"]: one for one in json.loads(path.read_text())[name]}


def _average_precision(evaluation: Any) -> float:
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return float(evaluation.stats[0])
