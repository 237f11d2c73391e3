"""What README and docs print can be used as printed; blocks that need a job run in `e2e`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from sapiens_batch.cli import app
from sapiens_batch.curate.recipe import parse_recipe
from sapiens_batch.errors import SapiensBatchError
from sapiens_batch.records import Sample
from sapiens_batch.sources import make_source
from sapiens_batch.spec.loading import parse_spec
from tests.conftest import REPO
from tests.pages import PAGES, blocks, commands, section

SOURCES = REPO / "docs" / "sources.md"
JOB = {
    "name": "any",
    "source": {"format": "images", "uri": "photos"},
    "tasks": {"seg": {"checkpoint": "demo"}},
    "output": {"uri": "labels"},
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_printed_command_has_the_arguments_that_the_program_takes(page: Path) -> None:
    for arguments in commands(page.read_text()):
        command: Any = get_command(app)
        while hasattr(command, "commands"):
            name, *arguments = arguments
            assert name in command.commands, f"{page.name}: there is no command {name}"
            command = command.commands[name]
        command.make_context(command.name, list(arguments), resilient_parsing=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_printed_yaml_is_a_job_file_a_part_of_one_or_a_recipe(page: Path) -> None:
    for block in blocks(page.read_text(), "yaml"):
        values = yaml.safe_load(block.text)
        try:
            if page.name == "curate.md":
                parse_recipe(values)
            else:
                parse_spec(values if "tasks" in values else JOB | values)
        except SapiensBatchError as error:
            pytest.fail(f"{page.name}: {error}\n{block.text}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_printed_python_compiles_and_few_of_it_cannot_run_here(page: Path) -> None:
    for block in blocks(page.read_text(), "python"):
        compile(block.text, page.name, "exec")
        assert block.needs in (None, "fiftyone", "released weights")


def test_the_readme_lists_every_extra() -> None:
    rows = re.findall(r"^\| (`.+`) \|", section(REPO / "README.md", "Install"), re.MULTILINE)
    listed = re.findall(r"`(\w+)`", " ".join(rows))
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    assert sorted(listed) == sorted(project["optional-dependencies"])


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder where the bundled photos are found as in a checkout."""
    (tmp_path / "sapiens_batch").symlink_to(REPO / "sapiens_batch")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("heading", "file", "people"),
    [
        (
            "Folders of images",
            None,
            {"astronaut.jpg": None, "cat.jpg": None, "photographer.jpg": None}
            | {"portraits.jpg": None},
        ),
        ("Listings", "csv", {"portraits.jpg": 2, "astronaut.jpg": 1, "cat.jpg": 0}),
        ("COCO", "json", {"astronaut.jpg": 1, "cat.jpg": 0, "portraits.jpg": 1}),
    ],
)
def test_the_examples_of_sources_plan_and_read_the_bundled_photos(
    checkout: Path, heading: str, file: str | None, people: dict[str, int | None]
) -> None:
    text = section(SOURCES, heading)
    (example,) = blocks(text, "yaml")
    spec = parse_spec(yaml.safe_load(example.text))
    if file is not None:
        (content,) = blocks(text, file)
        (checkout / spec.source.uris[0]).write_text(content.text)
    (checkout / "job.yaml").write_text(example.text)
    planned = CliRunner().invoke(app, ["plan", "job.yaml"])
    assert (planned.exit_code, planned.exception) == (0, None), planned.output

    source = make_source(spec.source)
    (shard,) = source.plan()
    samples = list(source.read(shard))
    assert all(isinstance(one, Sample) and one.problem is None for one in samples)
    found = {one.key: one for one in samples if isinstance(one, Sample)}
    counts = {key: None if one.boxes is None else len(one.boxes) for key, one in found.items()}
    assert counts == people
    assert all(set(one.extra) == set(spec.source.columns) for one in found.values())
    photos = REPO / "sapiens_batch" / "samples" / "photos"
    assert all(one.encoded == (photos / key).read_bytes() for key, one in found.items())
