"""What README and docs print works as printed, on the job of the README's first command."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sapiens_batch.cli import app
from tests.conftest import REPO
from tests.pages import PAGES, blocks, commands

README = REPO / "README.md"
READING = REPO / "docs" / "reading.md"


def run(arguments: list[str]) -> str:
    """Run a command of the program, which must succeed."""
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.exception) == (0, None), f"{arguments}: {done.output}"
    return done.output


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> Path:
    """A working folder like a checkout after the quickstart and the README's commands on it."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("jobs", "sapiens_batch"):
        (folder / name).symlink_to(REPO / name)
    (quickstart,) = [
        line.partition("sapiens-batch ")[2].split()
        for line in (REPO / "Makefile").read_text().splitlines()
        if "sapiens-batch run" in line
    ]
    readme = [one for one in commands(README.read_text()) if "labels/quickstart" in one]
    reading = [one for one in commands(READING.read_text()) if one[0] == "run"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for arguments in [quickstart, *readme, *reading]:
            run(arguments)
    return folder


def test_the_commands_of_the_tour_leave_what_they_say(checkout: Path) -> None:
    annotations = checkout / "coco" / "annotations" / "person_keypoints.json"
    assert annotations.is_file()
    assert (checkout / "chosen.parquet").is_file()
    assert any((checkout / "labels" / "quickstart" / "index" / "views").iterdir())


def test_every_python_block_of_the_tour_runs(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(checkout)
    found: dict[str, object] = {}
    for block in blocks(README.read_text(), "python"):
        assert block.needs is None
        exec(compile(block.text, "README.md", "exec"), found)
    shown = capsys.readouterr().out
    assert "decode.truncated" in shown
    assert "ok 2" in shown
    assert getattr(found["mask"], "shape", None) == (425, 640)
    assert getattr(found["normals"], "shape", None) == (3, 425, 640)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES[1:] if blocks(page.read_text(), "python")],
    ids=lambda page: page.name,
)
def test_the_python_blocks_of_a_page_run_one_after_another(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, page: Path
) -> None:
    monkeypatch.chdir(checkout)
    found: dict[str, object] = {}
    for block in blocks(page.read_text(), "python"):
        if block.needs is None:
            exec(compile(block.text, page.name, "exec"), found)
