"""Persons found in pixels: by the bundled model, and by a transformers model."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from sapiens_batch.errors import SpecError
from sapiens_batch.images.decode import decode
from sapiens_batch.images.decoded import DecodedImage, DecodeOptions
from sapiens_batch.persons import make_person_finder
from sapiens_batch.persons.base import Persons
from sapiens_batch.persons.detector import detector_digest
from sapiens_batch.records import Array
from sapiens_batch.samples.build import PHOTOS
from sapiens_batch.spec.job import PersonsSpec
from tests.persons.images import image_of_size, sample

torch.set_num_threads(1)


def detector_spec(**settings: object) -> PersonsSpec:
    return PersonsSpec.model_validate({"from": "detector", "detector": settings})


def found(spec: PersonsSpec, *images: DecodedImage) -> list[Persons]:
    persons = make_person_finder(spec).find([sample()] * len(images), images)
    assert all(isinstance(one, Persons) for one in persons)
    return persons


def photo(name: str) -> DecodedImage:
    return decode((PHOTOS / f"{name}.jpg").read_bytes())


def iou(one: Array, other: list[float]) -> float:
    first = np.maximum(one[:2], other[:2])
    last = np.minimum(one[:2] + one[2:], np.array(other[:2]) + other[2:])
    overlap = np.maximum(0, last - first).prod()
    return float(overlap / (one[2] * one[3] + other[2] * other[3] - overlap))


class TestMoveNet:
    @pytest.fixture(autouse=True)
    def _needs_onnxruntime(self) -> None:
        pytest.importorskip("onnxruntime", reason="the extra `detect` is not installed")

    @pytest.mark.parametrize(
        ("name", "boxes"),
        [
            ("astronaut", [[9.4, 7.6, 359.5, 504.4]]),
            ("photographer", [[0, 63, 345, 449]]),
            ("portraits", [[0, 14, 320, 411], [322, 12, 318, 413]]),
        ],
    )
    def test_the_people_of_the_bundled_photos_are_found(
        self, name: str, boxes: list[list[float]]
    ) -> None:
        (persons,) = found(detector_spec(), photo(name))
        assert len(persons.boxes) == len(boxes)
        for box in boxes:
            assert max(iou(one, box) for one in persons.boxes) > 0.5
        assert (persons.scores > 0.2).all()
        assert (persons.scores <= 1).all()

    def test_a_cat_is_nobody(self) -> None:
        (persons,) = found(detector_spec(), photo("cat"))
        assert len(persons.boxes) == 0

    def test_the_threshold_is_strict_and_boxes_come_best_first(self) -> None:
        (persons,) = found(detector_spec(), photo("portraits"))
        assert persons.scores[0] >= persons.scores[1]
        higher = float(persons.scores[1])
        (fewer,) = found(detector_spec(score_threshold=higher), photo("portraits"))
        np.testing.assert_array_equal(fewer.boxes, persons.boxes[:1])

    def test_neighbours_change_nothing(self) -> None:
        names = ["astronaut", "portraits", "cat", "photographer"]
        together = found(detector_spec(), *(photo(name) for name in names))
        for name, persons in zip(names, together, strict=True):
            (alone,) = found(detector_spec(), photo(name))
            np.testing.assert_array_equal(persons.boxes, alone.boxes)
            np.testing.assert_array_equal(persons.scores, alone.scores)

    def test_a_reduced_image_gives_boxes_in_source_pixels(self) -> None:
        encoded = (PHOTOS / "portraits.jpg").read_bytes()
        reduced = decode(encoded, options=DecodeOptions(scaled=True), crop_density=0.5)
        assert reduced.reduction == 2
        (small,), (whole,) = (found(detector_spec(), one) for one in (reduced, decode(encoded)))
        assert iou(small.boxes[0], whole.boxes[0].tolist()) > 0.9

    @pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1), (300, 5)])
    def test_images_of_extreme_shape_are_searched_too(self, size: tuple[int, int]) -> None:
        (persons,) = found(detector_spec(), image_of_size(*size))
        assert len(persons.boxes) == 0

    def test_the_narrowed_weights_give_the_boxes_of_the_full_ones(self, shared: Path) -> None:
        from importlib import resources

        from sapiens_batch.persons.movenet import MoveNetDetector

        bundled = resources.files("sapiens_batch.persons.models") / "movenet-multipose.onnx"
        full = shared / "models" / "movenet-multipose.onnx"
        one, other = (MoveNetDetector(path.read_bytes()) for path in (bundled, full))
        assert one.digest != other.digest
        for name in ("astronaut", "portraits"):
            image = photo(name)
            (boxes, scores), (expected, expected_scores) = (
                detector.detect([image])[0] for detector in (one, other)
            )
            np.testing.assert_allclose(boxes, expected, atol=0.5)
            np.testing.assert_allclose(scores, expected_scores, atol=1e-3)


def test_a_transformers_model_finds_what_its_own_pipeline_finds(detr: Path) -> None:
    from transformers import AutoImageProcessor, AutoModelForObjectDetection

    image = photo("portraits")
    processor = AutoImageProcessor.from_pretrained(detr, backend="pil")
    model = AutoModelForObjectDetection.from_pretrained(detr).eval()
    with torch.inference_mode():
        outputs = model(**processor(images=image.pixels, return_tensors="pt"))
    (expected,) = processor.post_process_object_detection(
        outputs, threshold=0.3, target_sizes=[image.size]
    )
    expected_boxes = expected["boxes"][expected["labels"] == 1].numpy()
    assert len(expected_boxes)
    (persons,) = found(detector_spec(model=str(detr), nms_iou=1.0), image)
    corners = np.concatenate(
        [persons.boxes[:, :2], persons.boxes[:, :2] + persons.boxes[:, 2:]], axis=1
    )
    order = np.argsort(-expected["scores"][expected["labels"] == 1].numpy(), kind="stable")
    np.testing.assert_allclose(corners, expected_boxes[order], atol=1e-2)


def test_a_transformers_model_is_identified_by_its_files(detr: Path, tmp_path: Path) -> None:
    digest = detector_digest(detector_spec(model=str(detr)))
    assert digest is not None
    assert re.fullmatch("[0-9a-f]{64}", digest)
    for path in detr.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert detector_digest(detector_spec(model=str(tmp_path))) == digest
    other = tmp_path / "other"
    other.mkdir()
    for path in detr.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    processor = json.loads((other / "preprocessor_config.json").read_text())
    processor["size"] = {"shortest_edge": 32, "longest_edge": 96}
    (other / "preprocessor_config.json").write_text(json.dumps(processor))
    assert detector_digest(detector_spec(model=str(other))) != digest


def test_weights_in_several_files_are_part_of_the_identity(detr: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForObjectDetection

    model = AutoModelForObjectDetection.from_pretrained(detr)
    digests = set()
    for name, factor in (("one", 1.0), ("other", 1.01)):
        folder = tmp_path / name
        with torch.no_grad():
            model.class_labels_classifier.bias.mul_(factor)
        model.save_pretrained(folder, max_shard_size="20KB")
        assert len(list(folder.glob("model-*.safetensors"))) > 1
        processor = (detr / "preprocessor_config.json").read_bytes()
        (folder / "preprocessor_config.json").write_bytes(processor)
        digests.add(detector_digest(detector_spec(model=str(folder))))
    assert len(digests) == 2


def test_jobs_without_a_detector_have_no_digest_of_one() -> None:
    assert detector_digest(PersonsSpec()) is None


def test_a_model_that_knows_no_persons_is_refused(detr: Path, tmp_path: Path) -> None:
    for path in detr.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    config["id2label"] = {"0": "N/A", "1": "cat", "2": "bicycle"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(SpecError, match="no class `person`"):
        detector_digest(detector_spec(model=str(tmp_path)))


def test_a_model_that_does_not_exist_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"persons\.detector\.model"):
        detector_digest(detector_spec(model=str(tmp_path)))
