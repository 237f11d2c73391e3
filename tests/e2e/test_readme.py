"""The README's tour works as printed, on the job of its first command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sapiens_batch.job.spec_file import load_spec, parse_spec
from sapiens_batch.pipeline.run import run_job
from tests.conftest import REPO
from tests.e2e.conftest import Recorder

README = (REPO / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> Path:
    """A folder in which the quickstart job has been run."""
    folder = tmp_path_factory.mktemp("tour")
    spec = load_spec(
        REPO / "jobs" / "quickstart.yaml",
        [f"output.uri={folder / 'labels' / 'quickstart'}"],
    )
    source = spec.source.model_copy(update={"uri": str(REPO / str(spec.source.uri))})
    summary = run_job(spec.model_copy(update={"source": source}), Recorder())
    assert summary.exit_code == 0
    return folder


def test_every_python_block_of_the_tour_runs(
    quickstart: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(quickstart)
    found: dict[str, object] = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), found)
    shown = capsys.readouterr().out
    assert "decode.truncated" in shown
    assert "ok 2" in shown
    assert getattr(found["mask"], "shape", None) == (425, 640)
    assert getattr(found["normals"], "shape", None) == (3, 425, 640)


def test_the_job_file_of_the_tour_is_valid() -> None:
    import yaml

    (text,) = blocks("yaml")
    assert parse_spec(yaml.safe_load(text)).name == "people"
