"""The program itself: how it is called, and its version."""

from __future__ import annotations

import subprocess
import sys
import tomllib

from typer.testing import CliRunner

from sapiens_batch.cli import app
from tests.conftest import REPO

RUN = CliRunner()


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    done = RUN.invoke(app, ["--version"])
    assert (done.exit_code, done.output) == (0, project["version"] + "\n")


def test_the_module_is_the_program() -> None:
    command = [sys.executable, "-m", "sapiens_batch", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == RUN.invoke(app, ["--version"]).output


def test_without_a_command_the_help_lists_them() -> None:
    assert "Label quarantined samples again" in " ".join(RUN.invoke(app, []).output.split())
