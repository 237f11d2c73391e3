"""Vectors of files and images; an image is embedded as the job embedded its samples."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from sapiens_batch.errors import DriftError, InputError
from sapiens_batch.labeler import describe
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.search import vector_of_file, vector_of_image
from sapiens_batch.sinks import label_schema as schema_json
from sapiens_batch.spec.loading import parse_spec

PHOTOS = Path(__file__).parents[2] / "sapiens_batch" / "samples" / "photos"


@pytest.fixture(scope="module")
def job() -> JobDocument:
    """A job whose embeddings come from the built-in random weights."""
    spec = parse_spec(
        {
            "name": "demo",
            "source": {"format": "images", "uri": "photos"},
            "tasks": {"embedding": {"checkpoint": "demo"}},
            "output": {"uri": "labels"},
        }
    )
    return JobDocument(
        name="demo",
        spec=spec.public_dict(),
        spec_digest="a" * 64,
        schemas=tuple(schema_json.to_json(one.schema) for one in describe(spec.tasks).values()),
    )


def test_an_image_is_embedded_by_the_jobs_model(job: JobDocument, tmp_path: Path) -> None:
    photo = PHOTOS / "cat.jpg"
    vector = vector_of_image(job, str(photo), device="cpu")
    assert vector.shape == (job.label_schemas[0].columns[0].shape[0],)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
    pixels = cv2.imread(str(photo))
    assert pixels is not None
    same, mirrored = tmp_path / "same.png", tmp_path / "mirrored.png"
    cv2.imwrite(str(same), pixels)
    cv2.imwrite(str(mirrored), pixels[:, ::-1])
    to_same = vector @ vector_of_image(job, str(same), device="cpu")
    to_mirrored = vector @ vector_of_image(job, str(mirrored), device="cpu")
    assert to_same > 0.999
    assert to_mirrored < to_same


def test_other_weights_than_the_jobs_are_refused(job: JobDocument) -> None:
    schema = job.schemas[0]
    changed = {**schema, "metadata": {**schema["metadata"], "encoder_sha256": "b" * 64}}
    other = job.model_copy(update={"schemas": (changed,)})
    with pytest.raises(
        DriftError, match="was embedded by encoder bbbbbbbbbbbb, its checkpoint now"
    ):
        vector_of_image(other, str(PHOTOS / "cat.jpg"), device="cpu")


def test_what_is_no_image_is_reported(job: JobDocument, tmp_path: Path) -> None:
    path = tmp_path / "page.jpg"
    path.write_text("<html>")
    with pytest.raises(InputError, match=r"page\.jpg: .*decode\.unknown_format"):
        vector_of_image(job, str(path), device="cpu")


def test_a_job_without_embeddings_is_reported(job: JobDocument) -> None:
    spec = {**job.spec, "tasks": {"seg": {"checkpoint": "demo"}}}
    with pytest.raises(InputError, match="has no task `embedding`; search by vector"):
        vector_of_image(job.model_copy(update={"spec": spec}), str(PHOTOS / "cat.jpg"))


def test_vectors_come_from_npy_files(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.array([1, 2, 3]))
    np.save(tmp_path / "two.npy", np.ones((2, 3), np.float16))
    assert vector_of_file(str(tmp_path / "one.npy")).tolist() == [[1, 2, 3]]
    assert vector_of_file(str(tmp_path / "two.npy")).shape == (2, 3)


def test_a_file_without_vectors_is_reported(tmp_path: Path) -> None:
    np.save(tmp_path / "text.npy", np.array(["a"]))
    with pytest.raises(InputError, match=r"has shape \(1,\) of <U1; give one vector"):
        vector_of_file(str(tmp_path / "text.npy"))
    (tmp_path / "torn.npy").write_bytes(b"x")
    with pytest.raises(InputError, match=r"torn\.npy is no readable \.npy file"):
        vector_of_file(str(tmp_path / "torn.npy"))
