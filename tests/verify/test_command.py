"""`verify`, `gc` and `errors` on the command line: what they print and the codes they end with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sapiens_batch.cli import app
from sapiens_batch.errors import InputError, SpecError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.storage import open_store
from tests.labelset.built_job import SHARDS, write_job

FIRST = SHARDS[0].shard_id


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("job")
    write_job(open_store(str(root)), committed=(0, 1, 2))
    return root


def call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def test_a_sound_job_ends_with_zero(job: Path) -> None:
    code, output = call("verify", str(job))
    assert code == 0
    assert "3 of 3 committed" in output
    assert "sound" in output


def test_damage_is_shown_and_ordered_to_be_repaired(job: Path) -> None:
    stored = Manifest.open(open_store(str(job))).commit(FIRST).arrays["seg"].chunks[0]
    whole = (job / stored.key).read_bytes()
    (job / stored.key).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    code, output = call("verify", str(job), "--json")
    assert code == 1
    assert [one["fault"] for one in json.loads(output)["findings"]] == ["object.checksum"]
    code, output = call("verify", str(job), "--repair")
    assert code == 1
    assert "1 shards are ordered to be labeled again: use `run`" in output
    (job / stored.key).write_bytes(whole)
    assert call("verify", str(job))[0] == 5
    (job / keys.relabel_order(FIRST, 1)).unlink()


def test_garbage_is_shown_before_it_is_removed(job: Path) -> None:
    key = keys.table("images", FIRST, "0" * 32)
    open_store(str(job)).create(key, b"lost race")
    assert "nothing to remove" in call("gc", str(job))[1]
    code, output = call("gc", str(job), "--grace-hours", "0")
    assert code == 0
    assert key in output
    assert (job / key).exists()
    values = json.loads(call("gc", str(job), "--grace-hours", "0", "--delete", "--json")[1])
    assert values["objects"] == {"orphan": 1}
    assert not (job / key).exists()


def test_errors_are_counted_and_listed_with_their_keys(job: Path) -> None:
    code, output = call("errors", str(job), "--limit", "2")
    assert code == 0
    assert "decode.truncated" in output
    assert "0.tar #1 k1" in output
    assert "and 1 more" in output
    values = json.loads(call("errors", str(job), "--json", "--reason", "decode")[1])
    assert values["reasons"] == {"decode.truncated": 3}
    assert len(values["samples"]) == 3


def test_a_reason_that_nothing_is_quarantined_for_is_refused(job: Path) -> None:
    done = CliRunner().invoke(app, ["errors", str(job), "--reason", "nonsense"])
    assert isinstance(done.exception, InputError)
    assert done.exception.exit_code == 2
    assert "there are decode.truncated 3" in str(done.exception)


def test_garbage_that_is_too_young_is_counted(job: Path) -> None:
    store = open_store(str(job))
    names = [keys.table("images", FIRST, f"{number:032x}") for number in range(25)]
    for name in names:
        store.create(name, b"lost race")
    shown = call("gc", str(job))[1]
    assert "nothing to remove" in shown
    assert "25 objects (225 bytes) that nothing needs are younger than 24 hours and stay" in shown
    values = json.loads(call("gc", str(job), "--json")[1])
    assert values["younger"] == {"objects": 25, "size_bytes": 225}
    shown = call("gc", str(job), "--grace-hours", "0", "--delete")[1]
    assert "and 5 more" in shown
    assert "younger" not in shown


def test_a_job_file_with_another_output_finds_the_job(job: Path, tmp_path: Path) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text(
        "name: job\nsource: {format: images, uri: in}\ntasks: {seg: {checkpoint: demo}}\n"
        "output: {uri: elsewhere}\n"
    )
    override = ["--set", f"output.uri={job}"]
    for command in ("verify", "status", "errors", "gc"):
        code, output = call(command, str(spec), *override)
        assert code == 0, output
    done = CliRunner().invoke(app, ["verify", str(job), *override])
    assert isinstance(done.exception, SpecError)
    assert "is a job directory" in str(done.exception)
