"""Detectors of the user's own on real Ray workers, whose working folder is not the driver's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sapiens_batch.driver.open_job import open_job, resolve
from sapiens_batch.driver.run import carry_out, run_job
from sapiens_batch.samples import build
from sapiens_batch.spec.job import JobSpec
from tests.e2e.conftest import Recorder
from tests.persons.test_planned_detector import detector
from tests.synthetic import Synthetic

pytest.importorskip("onnxruntime", reason="the extra `detect` is not installed")
pytestmark = pytest.mark.usefixtures("ray_cluster")


@pytest.fixture
def spec(
    make_spec: Callable[..., JobSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> JobSpec:
    """A job whose detector is named by a path relative to the driver's folder."""
    monkeypatch.chdir(tmp_path)
    detector(tmp_path / "finder.onnx", 0.9)
    return make_spec(
        {"format": "webdataset", "uri": str(build.SHARD)},
        persons={"from": "detector", "detector": {"model": "finder.onnx"}},
        tasks={"pose": {"checkpoint": "demo"}},
        errors={"max_attempts": 1},
    )


def test_a_relative_path_means_the_folder_of_the_driver(spec: JobSpec, tmp_path: Path) -> None:
    summary = run_job(spec, Recorder(), load=Synthetic())
    assert summary.failures == ()
    assert (summary.status.counts.ok, summary.status.counts.persons) == (4, 4)
    written = json.loads((tmp_path / "labels" / "job.json").read_text())
    assert written["spec"]["persons"]["detector"]["model"] == "finder.onnx"


def test_workers_with_another_file_fail_and_blame_no_image(spec: JobSpec, tmp_path: Path) -> None:
    context, manifest = open_job(resolve(spec), Recorder().message)
    detector(tmp_path / "finder.onnx", 0.1)
    summary = carry_out(context, manifest, Recorder(), load=Synthetic())
    assert summary.exit_code == 2
    assert summary.status.committed_shards == summary.status.counts.quarantined == 0
    assert {failure.stage for failure in summary.failures} == {"prepare"}
    assert all("same file on every node" in failure.message for failure in summary.failures)
