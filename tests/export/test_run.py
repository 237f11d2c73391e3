"""What holds for every format beyond its contract: imports, relabeled jobs, the command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sapiens_batch.cli import app
from sapiens_batch.errors import DriftError, InputError, ProtocolError, SpecError
from sapiens_batch.export import documents, exporter
from sapiens_batch.export.documents import ExportPlan
from sapiens_batch.export.spool import Spool
from tests.export.conftest import run
from tests.labeled_job import make_labeled_job


def test_exporting_imports_neither_ray_nor_torch() -> None:
    code = (
        "import sys, sapiens_batch.export; "
        "print([name for name in ('ray', 'torch') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert found.stdout.strip() == "[]"


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SpecError, match=r"'yolo'.*coco, fiftyone"):
        exporter("yolo")


def test_a_job_without_the_labels_of_a_format_is_refused(tmp_path: Path) -> None:
    job = make_labeled_job(tmp_path / "job", num_samples=2, tasks=("seg",))
    with pytest.raises(InputError, match="takes embedding"):
        run(job, tmp_path / "out", "clip-retrieval")


def test_random_labels_are_exported_with_a_warning(tmp_path: Path) -> None:
    job = make_labeled_job(tmp_path / "job", num_samples=3, tasks=("pose", "embedding"), demo=True)
    assert "mean nothing" in run(job, tmp_path / "hf", "huggingface").warning
    assert "**Warning:**" in (tmp_path / "hf/README.md").read_text()
    run(job, tmp_path / "coco", "coco")
    document = json.loads((tmp_path / "coco/annotations/person_keypoints.json").read_text())
    assert "WARNING" in document["info"]["description"]


def test_the_plan_is_frozen_with_the_commits_it_was_made_from(job: Path, tmp_path: Path) -> None:
    run(job, tmp_path / "out", "clip-retrieval", part=(1, 2))
    plan = ExportPlan.from_bytes((tmp_path / "out/.export/plan.json").read_bytes(), "plan.json")
    assert [shard.first for shard in plan.shards] == [0, 11, 22]


def test_a_spool_hands_over_what_was_written_without_reading_it() -> None:
    with Spool() as spool:
        spool.write(b"abc")
        spool.write(memoryview(b"def"))
        assert bytes(spool.view()) == b"abcdef"
    with Spool() as spool:
        assert bytes(spool.view()) == b""


def test_the_command_exports_and_then_has_nothing_to_do(job: Path, tmp_path: Path) -> None:
    arguments = ["export", "croissant", str(job), str(tmp_path / "out"), "--set", "creator=me"]
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 0, first.output
    assert "24 samples of 3 shards" in first.output.replace("\n", " ")
    assert "nothing left to do" in CliRunner().invoke(app, arguments).output


def test_the_command_says_that_other_parts_are_to_run(job: Path, tmp_path: Path) -> None:
    arguments = ["export", "clip-retrieval", str(job), str(tmp_path / "out"), "--json"]
    found = CliRunner().invoke(app, [*arguments, "--partition", "1/2"])
    assert found.exit_code == 5
    assert json.loads(found.stdout.splitlines()[-1])["complete"] is False


def test_a_job_that_was_labeled_again_is_not_mixed_into_a_begun_export(
    job: Path, tmp_path: Path
) -> None:
    run(job, tmp_path / "begun", "clip-retrieval", part=(1, 2))
    data = (tmp_path / "begun/.export/plan.json").read_bytes()
    plan = ExportPlan.from_bytes(data, "plan.json")
    shards = tuple(shard._replace(write_id="0" * 32) for shard in plan.shards)
    target = tmp_path / "later/.export/plan.json"
    target.parent.mkdir(parents=True)
    target.write_bytes(plan.model_copy(update={"shards": shards}).to_bytes())
    with pytest.raises(DriftError, match="labeled again"):
        run(job, tmp_path / "later", "clip-retrieval")


def test_a_damaged_piece_of_a_begun_export_is_not_put_together(job: Path, tmp_path: Path) -> None:
    run(job, tmp_path / "out", "coco", part=(1, 2))
    piece = max(
        (tmp_path / "out/.export/pieces").rglob("*.json"), key=lambda path: path.stat().st_size
    )
    data = bytearray(piece.read_bytes())
    data[len(data) // 2] ^= 1
    piece.write_bytes(data)
    with pytest.raises(ProtocolError, match=rf"{piece.name}.*export to another folder"):
        run(job, tmp_path / "out", "coco", part=(2, 2))
    assert not (tmp_path / "out" / documents.DONE).exists()


def test_an_unknown_option_is_refused_with_the_likely_one(job: Path, tmp_path: Path) -> None:
    arguments = ["export", "coco", str(job), str(tmp_path / "out"), "--set"]
    found = CliRunner().invoke(app, [*arguments, "keypoint=body"])
    assert isinstance(found.exception, SpecError)
    assert "export coco: no option 'keypoint'; did you mean `keypoints`?" in str(found.exception)
    found = CliRunner().invoke(app, [*arguments, "keypoints=["])
    assert isinstance(found.exception, SpecError)
    assert "--set keypoints=[: the value is not valid YAML" in str(found.exception)
