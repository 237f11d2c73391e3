"""Detectors that compute NaN or infinity: nothing of it passes for an image without persons."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from sapiens_batch.persons import make_person_finder
from sapiens_batch.records import Problem
from sapiens_batch.spec.job import PersonsSpec
from tests.persons.images import sample
from tests.persons.onnx_models import constant
from tests.persons.test_detector import detector_spec, found, photo
from tests.persons.test_onnx_detector import SIZE, picture

pytest.importorskip("onnxruntime", reason="the extra `detect` is not installed")


class TestNumbersThatAreNotFinite:
    @pytest.mark.parametrize("broken", [np.nan, np.inf])
    def test_scores_quarantine_the_image(self, tmp_path: Path, broken: float) -> None:
        candidates = np.zeros((1, 84, 200), np.float32)
        candidates[0, 4, 7] = broken
        spec = detector_spec(model=str(constant(tmp_path / "a.onnx", candidates, SIZE)))
        (problem,) = make_person_finder(spec).find([sample()], [picture(64, 64, (1, 1, 9, 9))])
        assert isinstance(problem, Problem)
        assert problem.reason == "person.detector_non_finite"
        assert "1 of " in problem.message

    def test_the_score_of_another_class_hides_who_is_a_person(self, tmp_path: Path) -> None:
        candidates = np.zeros((1, 84, 200), np.float32)
        candidates[0, 60, 7] = np.nan
        spec = detector_spec(model=str(constant(tmp_path / "a.onnx", candidates, SIZE)))
        (problem,) = make_person_finder(spec).find([sample()], [picture(64, 64, (1, 1, 9, 9))])
        assert isinstance(problem, Problem)

    @pytest.mark.parametrize("broken", [np.nan, np.inf])
    def test_a_likely_box_is_a_refused_person(self, tmp_path: Path, broken: float) -> None:
        candidates = np.zeros((1, 84, 200), np.float32)
        candidates[0, 4, :3] = 0.9, 0.8, 0.7
        candidates[0, :4, 0] = 96, 64, 60, 40
        candidates[0, :4, 1:3] = broken
        model = str(constant(tmp_path / "a.onnx", candidates, SIZE))
        (persons,) = found(detector_spec(model=model), picture(128, 192, (1, 1, 9, 9)))
        np.testing.assert_allclose(persons.boxes, [[66, 44, 60, 40]])
        assert [one.problem.reason for one in persons.refused] == ["person.not_finite"] * 2
        np.testing.assert_allclose([one.score for one in persons.refused], [0.8, 0.7])

    def test_refused_boxes_are_bounded_by_the_largest_number_of_persons(
        self, tmp_path: Path
    ) -> None:
        candidates = np.full((1, 84, 200), np.inf, np.float32)
        candidates[0, 4:] = 0
        candidates[0, 4] = np.linspace(0.5, 0.9, 200)
        model = str(constant(tmp_path / "a.onnx", candidates, SIZE))
        section = {"from": "detector", "max_persons": 3, "detector": {"model": model}}
        (persons,) = found(PersonsSpec.model_validate(section), picture(128, 192, (1, 1, 9, 9)))
        assert len(persons.refused) == 3
        assert min(float(one.score) for one in persons.refused) > 0.89

    def test_what_overflows_half_precision_is_not_lost(self, tmp_path: Path) -> None:
        candidates = np.zeros((1, 84, 200), np.float16)
        candidates[0, 4, 0] = 0.9
        with np.errstate(over="ignore"):
            candidates[0, 2, 0] = np.float32(7e4)  # wider than float16 holds
        model = str(constant(tmp_path / "a.onnx", candidates, SIZE))
        (persons,) = found(detector_spec(model=model), picture(128, 192, (1, 1, 9, 9)))
        assert [one.problem.reason for one in persons.refused] == ["person.not_finite"]


@pytest.mark.parametrize(
    ("part", "reason"),
    [("class_labels_classifier.weight", "scores"), ("bbox_predictor.layers.2.bias", "boxes")],
)
def test_a_transformers_model_with_weights_that_are_not_finite(
    detr: Path, tmp_path: Path, part: str, reason: str
) -> None:
    from safetensors.torch import load_file, save_file

    for path in detr.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    weights = load_file(detr / "model.safetensors")
    weights[part] = torch.full_like(weights[part], torch.nan)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    finder = make_person_finder(detector_spec(model=str(tmp_path)))
    (outcome,) = finder.find([sample()], [photo("astronaut")])
    if reason == "scores":
        assert isinstance(outcome, Problem)
        assert "12 of 12 candidates" in outcome.message
    else:
        assert not isinstance(outcome, Problem)
        assert len(outcome.boxes) == 0
        assert {one.problem.reason for one in outcome.refused} == {"person.not_finite"}
