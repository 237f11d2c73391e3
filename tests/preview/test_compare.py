"""Two jobs over one corpus."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sapiens_batch.labelset import LabelSet
from sapiens_batch.preview.compare import CompareOptions, Comparison, compare_labels
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.storage import open_store
from tests.labeled_job import make_labeled_job


@pytest.fixture(scope="module")
def found(manifest: Manifest, other_manifest: Manifest) -> Comparison:
    return compare_labels(LabelSet(manifest), LabelSet(other_manifest), CompareOptions(worst=3))


def test_a_job_does_not_differ_from_itself(manifest: Manifest) -> None:
    same = compare_labels(LabelSet(manifest), LabelSet(manifest), CompareOptions())
    assert same.spreads["keypoint_px"].extreme == 0
    assert same.spreads["mask_iou"].mean == 1
    # arccos of a float16 dot product near 1
    assert same.spreads["normal_degrees"].extreme < 2
    assert same.spreads["depth_m"].extreme == 0


def test_every_common_sample_is_counted_once(found: Comparison) -> None:
    assert found.num_samples == 40
    assert (found.num_only_first, found.num_only_second) == (0, 0)
    assert sum(found.statuses.values()) == 40
    assert found.statuses["quarantined → quarantined"] == 3
    assert found.num_persons["first"] == found.num_persons["matched"]


def test_the_worst_samples_are_the_extremes_in_order(found: Comparison) -> None:
    high = [one.value for one in found.worst["keypoint_px"]]
    assert high == sorted(high, reverse=True)
    assert high[0] == pytest.approx(found.spreads["keypoint_px"].extreme)
    low = [one.value for one in found.worst["mask_iou"]]
    assert low == sorted(low)
    assert low[0] == pytest.approx(found.spreads["mask_iou"].extreme)


def test_a_filter_limits_what_is_compared(manifest: Manifest, other_manifest: Manifest) -> None:
    options = CompareOptions(wanted="num_persons = 2", by="place")
    found = compare_labels(LabelSet(manifest), LabelSet(other_manifest), options)
    assert found.statuses == {"ok → ok": found.num_samples}
    assert found.num_persons["first"] == 2 * found.num_samples


def test_samples_of_one_job_only_are_counted(manifest: Manifest, tmp_path: Path) -> None:
    path = make_labeled_job(tmp_path / "few", num_samples=10, row_size=(32, 24))
    few = LabelSet(Manifest.open(open_store(str(path))))
    found = compare_labels(LabelSet(manifest), few, CompareOptions())
    assert (found.num_samples, found.num_only_first, found.num_only_second) == (10, 30, 0)


def test_a_comparison_is_json(found: Comparison) -> None:
    values = json.loads(json.dumps(found.to_json()))
    assert values["spreads"]["mask_iou"]["num_samples"] == found.spreads["mask_iou"].num_samples
    assert values["worst"]["keypoint_px"][0]["key"] == found.worst["keypoint_px"][0].key
