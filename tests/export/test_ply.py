"""Point clouds, read by `plyfile`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from plyfile import PlyData

from sapiens_batch.labelset import LabelSet
from sapiens_batch.records import Affine
from tests.conformance.exporter_contract import ExporterContract
from tests.export.conftest import ExportTo


class TestPlyContract(ExporterContract):
    format_name = "ply"
    changed: ClassVar[dict[str, Any]] = {"stride": 2}


def test_a_cloud_has_the_points_on_persons_with_the_photo_s_colours(
    export_to: ExportTo, tmp_path: Path, labels: LabelSet
) -> None:
    folder = export_to(tmp_path, "ply", where="key = 'sample-000000'")
    vertex = PlyData.read(folder / "points/000000/sample-000000.ply")["vertex"]
    sample = labels.sample("sample-000000")
    points, parts = sample.array("pointmap"), sample.array("seg")
    assert points is not None and parts is not None
    # in this job both arrays have the same frame
    person = (parts != 0) & (parts != 255) & np.isfinite(points).all(axis=0)
    assert len(vertex["x"]) == pytest.approx(person.sum(), rel=0.02)
    assert 0.5 < vertex["z"].min() <= vertex["z"].max() < 10
    colours = np.stack([vertex[name] for name in ("red", "green", "blue")], axis=1)
    assert len(np.unique(colours, axis=0)) > 100


def test_all_points_in_frame_order_where_asked_for(
    export_to: ExportTo, tmp_path: Path, labels: LabelSet
) -> None:
    folder = export_to(
        tmp_path, "ply", where="key = 'sample-000000'", region="all", stride=2, pictures=False
    )
    vertex = PlyData.read(folder / "points/000000/sample-000000.ply")["vertex"]
    points = labels.sample("sample-000000").array("pointmap")
    assert points is not None
    expected = points[:, ::2, ::2].astype(np.float32)
    known = np.isfinite(expected).all(axis=0)
    for axis, name in enumerate("xyz"):
        np.testing.assert_array_equal(vertex[name], expected[axis][known])
    assert set(vertex["red"].tolist()) == {180}


def test_colours_are_taken_where_the_point_lies_in_the_photo(
    export_to: ExportTo, tmp_path: Path, labels: LabelSet
) -> None:
    from sapiens_batch.images.decode import decode

    folder = export_to(tmp_path, "ply", where="key = 'sample-000000'", region="all")
    vertex = PlyData.read(folder / "points/000000/sample-000000.ply")["vertex"]
    sample = labels.sample("sample-000000")
    points = sample.array("pointmap")
    assert points is not None
    known = np.isfinite(points).all(axis=0)
    rows, columns = np.nonzero(known)
    affine = Affine(*sample.row["pointmap_affine"])
    x, y = np.rint(affine.apply(np.stack([columns, rows], axis=1))).astype(int).T
    photos = export_to(tmp_path / "photo", "fiftyone", where="key = 'sample-000000'")
    pixels = decode((photos / "data/000000/sample-000000.jpg").read_bytes()).pixels
    expected = pixels[y.clip(0, len(pixels) - 1), x.clip(0, pixels.shape[1] - 1)]
    found = np.stack([vertex[name] for name in ("red", "green", "blue")], axis=1)
    np.testing.assert_array_equal(found, expected)
