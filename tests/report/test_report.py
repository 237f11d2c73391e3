"""The quality card of a job."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from sapiens_batch.labelset import LabelSet
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.report import Report, make_report, write_report
from sapiens_batch.storage import open_store
from tests.labeled_job import make_labeled_job


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    path = make_labeled_job(
        tmp_path_factory.mktemp("report") / "job",
        num_samples=40, shard_samples=10, chunk_samples=8, row_size=(32, 24),
    )  # fmt: skip
    return Manifest.open(open_store(str(path)))


@pytest.fixture(scope="module")
def made(manifest: Manifest) -> Report:
    return make_report(manifest, pictures=12)


def test_every_sample_is_counted(made: Report, manifest: Manifest) -> None:
    rows = LabelSet(manifest).images.to_table().to_pylist()
    statuses = Counter(row["status"] for row in rows)
    assert {name: made.counts[name] for name in statuses} == dict(statuses)
    assert made.reasons == {
        "decode.truncated": 1, "decode.unknown_format": 1, "label.non_finite": 1,
    }  # fmt: skip
    assert (made.committed_shards, made.planned_shards, made.damaged_shards) == (4, 4, 0)
    assert sum(made.persons_per_image) == statuses["ok"] + statuses["empty"]
    persons = sum(number * count for number, count in enumerate(made.persons_per_image))
    assert persons == made.counts["persons"]


def test_scores_are_counted_by_group(made: Report, manifest: Manifest) -> None:
    scores = np.stack(
        [
            one["keypoint_scores"]
            for sample in LabelSet(manifest).samples()
            for one in sample.persons
        ]
    )
    assert list(made.scores) == ["body", "feet", "left_hand", "right_hand", "face", "extra"]
    assert made.scores["feet"].mean == pytest.approx(float(scores[:, 15:21].mean()), abs=1e-6)
    assert sum(made.scores["feet"].counts) == 6 * len(scores)
    assert sum(sum(one.counts) for one in made.scores.values()) == scores.size


def test_class_areas_are_shares_of_the_image(made: Report, manifest: Manifest) -> None:
    pixels = [
        sample.row["seg_class_pixels"]
        for sample in LabelSet(manifest).samples()
        if sample.row["seg_class_pixels"] is not None
    ]
    assert made.num_masks == len(pixels)
    hair = next(one for one in made.classes if one.name == "Hair")
    shares = [one[4] / one.sum() for one in pixels]
    assert hair.mean_share == pytest.approx(float(np.mean(shares)))
    assert hair.num_images == sum(one[4] > 0 for one in pixels) == sum(hair.shares.counts)
    assert hair.colour == "#ff006d"
    assert sum(one.mean_share for one in made.classes) == pytest.approx(1)


def test_brightness_is_of_a_stated_number_of_pictures(made: Report) -> None:
    assert made.brightness is not None
    assert made.brightness.num_asked == 12
    assert 9 <= made.brightness.num_pictures <= 12
    assert sum(made.brightness.brightness) == made.brightness.num_pictures
    assert 40 < made.brightness.mean < 160


def test_receipts_tell_how_long_stages_took(made: Report) -> None:
    assert made.speed.num_shards == 4
    assert made.speed.num_samples == 40
    assert made.speed.stage_s_per_sample["label"] == pytest.approx(0.05)


def test_the_three_files_say_the_same(made: Report, tmp_path: Path) -> None:
    page, markdown, document = write_report(made, tmp_path / "card.html")
    assert [path.name for path in (page, markdown, document)] == [
        "card.html", "card.md", "card.json",
    ]  # fmt: skip
    values = json.loads(document.read_text())
    assert values["counts"] == dict(made.counts)
    assert values["megapixels"]["edges"][-1] is None
    assert "| `decode.truncated` | 1 |" in markdown.read_text()
    assert "decode.truncated" in page.read_text()
    assert "CC0-1.0" in markdown.read_text()


def test_pictures_that_are_gone_are_said_to_be(tmp_path: Path) -> None:
    job = make_labeled_job(tmp_path / "job", num_samples=4, row_size=(16, 12))
    shutil.rmtree(tmp_path / "job-corpus")
    made = make_report(Manifest.open(open_store(str(job))))
    assert made.brightness is not None
    assert made.brightness.num_pictures == 0
    assert made.brightness.problems


def test_a_job_without_persons_or_masks_has_a_report(tmp_path: Path) -> None:
    job = make_labeled_job(tmp_path / "job", num_samples=4, row_size=(16, 12), tasks=("normal",))
    made = make_report(Manifest.open(open_store(str(job))), pictures=0)
    page, _, _ = write_report(made, tmp_path / "r.html")
    assert made.scores == {}
    assert made.classes == ()
    assert "Body parts" not in page.read_text()
