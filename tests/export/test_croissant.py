"""Croissant metadata, validated and read by `mlcroissant`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from sapiens_batch.labelset import LabelSet
from tests.conformance.exporter_contract import ExporterContract
from tests.export.conftest import ExportTo

# rdflib and pandas deprecate what mlcroissant calls
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:The inplace keyword"
)


class TestCroissantContract(ExporterContract):
    format_name = "croissant"
    changed: ClassVar[dict[str, Any]] = {"creator": "somebody"}


@pytest.fixture(scope="module")
def folder(export_to: ExportTo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_to(tmp_path_factory.mktemp("croissant"), "croissant", creator="The Lab")


def test_the_document_is_valid_and_its_records_are_the_job_s(
    folder: Path, labels: LabelSet
) -> None:
    import mlcroissant

    dataset = mlcroissant.Dataset(str(folder / "croissant.json"))
    assert not dataset.metadata.ctx.issues.errors
    assert not dataset.metadata.ctx.issues.warnings
    persons = list(dataset.records("persons"))
    assert len(persons) == labels.persons.count_rows()
    first = persons[0]
    sample = labels.sample(first["persons/key"].decode())
    points = np.array([list(one) for one in first["persons/keypoints"]], np.float32)
    np.testing.assert_array_equal(points, sample.persons[0]["keypoints"])
    images = list(dataset.records("images"))
    assert {one["images/status"] for one in images} == {b"ok", b"empty"}


def test_every_file_is_listed_with_its_checksum(folder: Path) -> None:
    document = json.loads((folder / "croissant.json").read_text())
    files = {
        one["contentUrl"]: one["sha256"]
        for one in document["distribution"]
        if one["@type"] == "cr:FileObject"
    }
    on_disk = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.glob("*/*.parquet")
    }
    assert files == on_disk
    assert document["conformsTo"] == "http://mlcommons.org/croissant/1.1"
    assert document["creator"]["name"] == "The Lab"
    assert document["license"] == ["CC0-1.0"]
