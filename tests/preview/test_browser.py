"""Pages opened in headless Chromium from the file system, at the sizes of a laptop and a phone."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapiens_batch.labelset import LabelSet
from sapiens_batch.preview import PreviewOptions, Selection, write_preview
from sapiens_batch.preview.compare import CompareOptions, compare_labels
from sapiens_batch.preview.differences import write_differences
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.report import make_report, write_report
from sapiens_batch.sheets.panels import PanelOptions
from tests.preview.browser import look_at

SCREENS = pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])


@SCREENS
def test_all_pictures_of_a_preview_decode(
    manifest: Manifest, tmp_path: Path, width: int, height: int
) -> None:
    page = tmp_path / "preview.html"
    shown = write_preview(manifest, page, PreviewOptions(Selection(count=6)))
    found = look_at(page, tmp_path, width=width, height=height)
    in_legend = 2
    assert found["pictures"] == sum(len(card.pictures) for card in shown.cards) + in_legend
    assert found["failures"] == []
    assert found["sticksOut"] <= 0


@SCREENS
def test_a_comparison_opens_without_errors(
    manifest: Manifest, other_manifest: Manifest, tmp_path: Path, width: int, height: int
) -> None:
    page = tmp_path / "compare.html"
    labels = LabelSet(manifest), LabelSet(other_manifest)
    found = compare_labels(*labels, CompareOptions(worst=2))
    write_differences(
        manifest, other_manifest, found, page, panels=PanelOptions(side=240), source_options={}
    )
    seen = look_at(page, tmp_path, width=width, height=height)
    assert seen["pictures"] > 3 * 4 * 2
    assert seen["failures"] == []
    assert seen["sticksOut"] <= 0


@SCREENS
def test_a_report_opens_without_errors(
    manifest: Manifest, tmp_path: Path, width: int, height: int
) -> None:
    page, _, _ = write_report(make_report(manifest, pictures=10), tmp_path / "report.html")
    seen = look_at(page, tmp_path, width=width, height=height)
    assert seen["failures"] == []
    assert seen["sticksOut"] <= 0
