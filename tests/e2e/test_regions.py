"""Every dense task on the box of each person: stored, read back, verified and exported."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from sapiens_batch.driver.run import run_job
from sapiens_batch.export import ExportRequest, export_labels
from sapiens_batch.labeler import Labeler
from sapiens_batch.labelset import LabelSet, open_labels
from sapiens_batch.preview.compare import CompareOptions, compare_labels
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.records import Level
from sapiens_batch.samples import build
from sapiens_batch.spec.loading import parse_spec
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.storage import open_store
from sapiens_batch.verify import check_job
from tests.e2e.conftest import Recorder

pytestmark = pytest.mark.usefixtures("ray_cluster")

TASKS = ("embedding", "features", "seg", "normal", "pointmap", "matting")
PERSONS = [("astronaut", 0), ("photographer", 0), ("portraits", 0), ("portraits", 1)]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> Path:
    """The bundled shard with every task on persons."""
    root = tmp_path_factory.mktemp("regions") / "labels"
    spec = parse_spec(
        {
            "name": "regions",
            "source": {"format": "webdataset", "uri": str(build.SHARD), "boxes": "boxes"},
            "tasks": {task: {"checkpoint": "demo", "region": "person"} for task in TASKS},
            "output": {"uri": str(root), "chunk_samples": 2},
        }
    )
    summary = run_job(spec, Recorder())
    assert (summary.exit_code, summary.status.counts.persons) == (0, 4)
    return root


@pytest.fixture(scope="module")
def labels(job: Path) -> LabelSet:
    return open_labels(str(job))


def test_every_person_has_every_array_and_embedding(labels: LabelSet) -> None:
    table = labels.persons.to_table().sort_by([("key", "ascending"), ("person", "ascending")])
    rows = table.to_pylist()
    assert [(row["key"], row["person"]) for row in rows] == PERSONS
    for row in rows:
        assert len(row["embedding"]) > 0
        for task in TASKS[1:]:
            values = labels.array(task)[row["shard_id"], row[f"{task}_row"]]
            height, width = row[f"{task}_height"], row[f"{task}_width"]
            if task != "seg":
                assert np.isfinite(values[..., :height, :width]).all(), task


@pytest.mark.parametrize(("key", "person"), PERSONS)
def test_stored_labels_are_those_of_the_labeler(labels: LabelSet, key: str, person: int) -> None:
    stored = labels.sample(key)
    assert stored is not None
    specs = {task: TaskSpec(checkpoint="demo", region=Level.PERSON) for task in ("seg", "normal")}
    picture = build.members()[f"{key}.jpg"]
    boxes = [one["bbox"] for one in stored.persons]
    (live,) = Labeler.load(specs, device="cpu").label_images([picture], [boxes])
    for task, limit in (("seg", 0), ("normal", 0.02)):
        mine, expected = stored.array(task, person), live.labels[task].array
        assert mine is not None
        assert expected is not None
        shown = expected[person][..., : mine.shape[-2], : mine.shape[-1]]
        close = np.isclose(mine, shown, atol=limit, rtol=0, equal_nan=True)
        assert close.mean() > 0.999, task
    mask = stored.to_source("seg", person)
    assert mask is not None
    assert mask.shape == live.size
    left, top, width, height = boxes[person]
    middle = mask[round(top + height / 4) : round(top + height / 2)]
    assert (middle[:, round(left + width / 4) : round(left + width / 2)] < 29).all()


def test_nothing_is_labeled_outside_the_boxes(labels: LabelSet) -> None:
    stored = labels.sample("portraits")
    assert stored is not None
    mask = stored.to_source("seg")
    assert mask is not None
    covered = np.zeros(mask.shape, bool)
    for one in stored.persons:
        left, top, width, height = (round(float(value)) for value in one["bbox"])
        covered[max(0, top) : top + height, max(0, left) : left + width] = True
    edge = 2  # frames end at whole pixels
    assert (mask[covered] < 29).mean() > 0.98
    assert (mask[~covered] < 29).sum() <= edge * 4 * sum(mask.shape)


def test_the_job_verifies(job: Path) -> None:
    assert check_job(Manifest.open(open_store(str(job)))).findings == ()


def test_a_job_compared_with_itself_does_not_differ(job: Path) -> None:
    manifest = Manifest.open(open_store(str(job)))
    found = compare_labels(LabelSet(manifest), LabelSet(manifest), CompareOptions())
    means = {name: spread.mean for name, spread in found.spreads.items()}
    assert (means["mask_iou"], means["mask_agreement"], means["depth_m"]) == (1, 1, 0)
    assert means["normal_degrees"] < 2  # stored in float16


def test_formats_take_labels_of_persons(job: Path, tmp_path: Path) -> None:
    for name in ("coco", "png", "webdataset", "ply", "clip-retrieval", "huggingface"):
        assert export_labels(name, ExportRequest(str(job), str(tmp_path / name), {})).complete, name
    found = json.loads((tmp_path / "coco/annotations/instances.json").read_text())
    assert len(found["annotations"]) == 4
    assert "own part mask" in found["info"]["masks"]
    metadata = sorted((tmp_path / "clip-retrieval/metadata").glob("*.parquet"))
    rows = [row for path in metadata for row in pq.read_table(path).to_pylist()]
    assert sorted((row["key"], row["person"]) for row in rows) == PERSONS
    clouds = sorted(path.name for path in (tmp_path / "ply").rglob("*.ply"))
    assert clouds == [f"{key}.{person}.ply" for key, person in PERSONS]
