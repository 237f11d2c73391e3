"""The detector that a job was planned with, on machines that may have another one, or none."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from sapiens_batch.errors import SpecError
from sapiens_batch.persons import make_person_finder
from sapiens_batch.persons.detector import detector_digest, with_absolute_model
from sapiens_batch.spec.job import PersonsSpec
from tests.persons.images import image_of_size, sample
from tests.persons.onnx_models import constant
from tests.persons.test_detector import detector_spec

pytest.importorskip("onnxruntime", reason="the extra `detect` is not installed")


def model_of(spec: PersonsSpec) -> str:
    return with_absolute_model(spec).detector_section.model


def detector(path: Path, score: float) -> Path:
    """A detector that finds one person with this score."""
    candidates = np.zeros((1, 84, 336), np.float32)
    candidates[0, :5, 0] = 64, 64, 40, 40, score
    return constant(path, candidates, (128, 128))


def test_paths_become_absolute_and_names_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "detr").mkdir()
    monkeypatch.chdir(tmp_path)
    assert model_of(detector_spec(model="a.onnx")) == f"{tmp_path}/a.onnx"
    assert model_of(detector_spec(model="detr")) == f"{tmp_path}/detr"
    assert model_of(detector_spec(model="~/a.onnx")) == f"{Path.home()}/a.onnx"
    for name in ("movenet", "facebook/detr-resnet-50", "s3://models/a.onnx", "/b/a.onnx"):
        assert model_of(detector_spec(model=name)) == name
    assert with_absolute_model(PersonsSpec()) == PersonsSpec()


def test_a_path_means_the_folder_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finder = make_person_finder(detector_spec(model="a.onnx"))
    for name, score in (("one", 0.9), ("other", 0.1)):
        (tmp_path / name).mkdir()
        detector(tmp_path / name / "a.onnx", score)
        monkeypatch.chdir(tmp_path / name)
        (persons,) = finder.find([sample()], [image_of_size(128, 128)])
        assert not isinstance(persons, str)
        assert len(persons.boxes) == (score > 0.3)


def test_a_worker_with_another_file_refuses_it(tmp_path: Path) -> None:
    path = detector(tmp_path / "a.onnx", 0.9)
    spec = detector_spec(model=str(path))
    finder = make_person_finder(spec, detector_digest(spec))
    finder.load()
    detector(path, 0.1)
    elsewhere = pickle.loads(pickle.dumps(make_person_finder(spec, "0" * 64)))
    with pytest.raises(SpecError, match=r"a\.onnx has the digest .* same file on every node"):
        elsewhere.find([sample()], [image_of_size(128, 128)])
    path.unlink()
    with pytest.raises(SpecError, match=r"does not exist.* same file on every node"):
        elsewhere.load()


def test_a_file_that_changed_since_an_earlier_job_is_read_again(tmp_path: Path) -> None:
    path = detector(tmp_path / "a.onnx", 0.9)
    spec = detector_spec(model=str(path))
    before = detector_digest(spec)
    make_person_finder(spec, before).load()
    detector(path, 0.1)
    after = detector_digest(spec)
    assert after != before
    make_person_finder(spec, after).load()
