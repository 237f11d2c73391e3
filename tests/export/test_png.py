"""PNG files of masks, depth and normals, read by Pillow."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from sapiens_batch.labelset import LabelSet
from tests.conformance.exporter_contract import ExporterContract
from tests.export.conftest import ExportTo


class TestPngContract(ExporterContract):
    format_name = "png"
    changed: ClassVar[dict[str, Any]] = {"masks": False}


@pytest.fixture(scope="module")
def folder(export_to: ExportTo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_to(tmp_path_factory.mktemp("png"), "png", normals=True)


def test_the_index_names_the_files_of_each_sample(folder: Path, labels: LabelSet) -> None:
    rows = [row for path in sorted((folder / "index").iterdir()) for row in _rows(path)]
    assert len(rows) == labels.images.count_rows() - len(_quarantined(labels))
    for row in rows:
        assert all((folder / row[kind]).is_file() for kind in ("mask", "depth", "normal"))


def test_masks_hold_classes_and_show_the_vocabulary_s_colours(
    folder: Path, labels: LabelSet
) -> None:
    for row in _rows(folder / "index/000001.parquet")[:4]:
        with Image.open(folder / row["mask"]) as mask:
            assert mask.mode == "P"
            classes, colours = np.array(mask), np.array(mask.convert("RGB"))
        assert (classes == labels.sample(row["key"]).to_source("seg")).all()
        face = classes == 3
        assert not face.any() or (colours[face] == (128, 200, 255)).all()


def test_depth_is_sixteen_bit_millimetres(folder: Path, labels: LabelSet) -> None:
    for row in _rows(folder / "index/000000.parquet")[:4]:
        with Image.open(folder / row["depth"]) as image:
            assert image.mode == "I;16"
            depth = np.array(image)
        points = labels.sample(row["key"]).to_source("pointmap")
        assert points is not None
        known = np.isfinite(points[2])
        assert (depth[~known] == 0).all()
        expected = points[2][known].astype(np.float64) * 1000
        np.testing.assert_allclose(depth[known], expected, atol=2)


def test_normals_are_colours_around_grey(folder: Path, labels: LabelSet) -> None:
    row = _rows(folder / "index/000000.parquet")[0]
    with Image.open(folder / row["normal"]) as image:
        colours = np.array(image).astype(float)
    normals = labels.sample(row["key"]).to_source("normal")
    assert normals is not None
    expected = np.moveaxis((normals.astype(float) + 1) / 2 * 255, 0, -1)
    known = np.isfinite(expected).all(axis=-1)
    np.testing.assert_allclose(colours[known], expected[known], atol=0.51)


def _rows(path: Path) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = pq.read_table(path).to_pylist()
    return rows


def _quarantined(labels: LabelSet) -> list[str]:
    table = labels.images.to_table(columns=["key", "status"]).to_pylist()
    return [row["key"] for row in table if row["status"] == "quarantined"]


def test_normals_of_persons_lie_on_a_background_of_ones_own(
    export_to: ExportTo, tmp_path: Path, labels: LabelSet
) -> None:
    folder = export_to(
        tmp_path, "png", normals=True, persons_only=True, background=(9, 8, 7), depth=False
    )
    for row in _rows(folder / "index/000000.parquet")[:4]:
        with Image.open(folder / row["normal"]) as image:
            colours = np.array(image)
        mask = labels.sample(row["key"]).to_source("seg")
        normals = labels.sample(row["key"]).to_source("normal")
        shown = (mask != 0) & (mask != 255) & np.isfinite(normals).all(axis=0)
        assert (colours[~shown] == (9, 8, 7)).all()
