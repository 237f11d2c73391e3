"""Console output: no text of strangers works the terminal, and the log is shown where asked for."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sapiens_batch.cli import app
from sapiens_batch.commands.console import show_log, shown, size_text
from sapiens_batch.storage import open_store
from tests.conftest import REPO
from tests.labelset import built_job

HOSTILE = "\x1b[2J\x1b]0;title\x07\u202etxt.exe [red]\nforged: line"


@pytest.fixture
def quiet_again() -> Iterator[None]:
    logger = logging.getLogger("sapiens_batch")
    handlers, level = list(logger.handlers), logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)


@pytest.fixture(scope="module")
def hostile_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hostile") / "job"
    with pytest.MonkeyPatch.context() as patch:
        images = built_job._images

        def with_hostile_keys(*arguments: int) -> object:
            table = images(*arguments)
            keys = [f"{HOSTILE}{key}" for key in table["key"].to_pylist()]
            return table.set_column(table.schema.get_field_index("key"), "key", [keys])

        patch.setattr(built_job, "_images", with_hostile_keys)
        built_job.write_job(open_store(str(root)), committed=(0, 1, 2))
    return root


@pytest.mark.parametrize(
    "command", [["errors"], ["errors", "--traces"], ["errors", "--json"], ["status"], ["verify"]]
)
def test_keys_cannot_work_a_terminal(hostile_job: Path, command: list[str]) -> None:
    output = CliRunner().invoke(app, [command[0], str(hostile_job), *command[1:]]).output
    assert output
    assert not [one for one in output if not one.isprintable() and one != "\n"]
    assert "\nforged" not in output


def test_an_error_message_keeps_its_lines_and_nothing_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sapiens_batch.cli import main

    monkeypatch.setattr("sys.argv", ["sapiens-batch", "status", "/nowhere/\x1b[31m[red]"])
    with pytest.raises(SystemExit):
        main()
    assert r"/nowhere/\x1b[31m[red]" in capsys.readouterr().err


def test_markup_and_control_characters_are_written_out() -> None:
    assert shown("[red]\x1b") == r"\[red]\x1b"


def test_only_one_module_knows_how_text_is_disarmed() -> None:
    files = (REPO / "sapiens_batch").rglob("*.py")
    assert [one.name for one in files if "rich.markup" in one.read_text()] == ["console.py"]


def test_sizes_are_short() -> None:
    texts = [size_text(size) for size in (999, 1000, 12_345_678, 3 * 10**15)]
    assert texts == ["999 B", "1.0 kB", "12.3 MB", "3.0 PB"]


def test_the_log_is_shown_once_and_disarmed(
    capsys: pytest.CaptureFixture[str], quiet_again: None
) -> None:
    log = logging.getLogger("sapiens_batch.driver.anything")
    log.info("before")
    show_log(1)
    show_log(1)
    log.info("key \x1b[2J")
    log.debug("detail")
    shown_lines = capsys.readouterr().err.splitlines()
    assert len(shown_lines) == 1
    assert shown_lines[0].endswith(r"INFO sapiens_batch.driver.anything: key \x1b[2J")


def test_without_being_asked_the_library_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger("sapiens_batch.storage").warning("unseen")
    show_log(0)
    assert capsys.readouterr().err == ""
