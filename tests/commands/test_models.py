"""`sapiens-batch models`: the list, and checking a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sapiens_batch.cli import app
from sapiens_batch.errors import SpecError, WeightsError

RUN = CliRunner()


def test_the_list_names_sizes_memory_and_licences() -> None:
    shown = RUN.invoke(app, ["models", "list"]).output
    assert "facebook/sapiens2-pose-0.4b" in shown
    assert "CC BY-NC 4.0" in shown
    listed = json.loads(RUN.invoke(app, ["models", "list", "--json"]).output)
    seg = next(one for one in listed if one["id"] == "facebook/sapiens2-seg-5b")
    assert seg["tasks"] == ["seg", "features", "embedding"]
    assert seg["licence"] == "sapiens2"
    assert 20 < seg["file_gb"] < 21


def test_the_list_shows_what_each_licence_forbids() -> None:
    shown = RUN.invoke(app, ["models", "list"]).output
    terms, _, later = shown.partition("CC BY-NC 4.0")
    assert "Forbidden: surveillance; biometric processing; identifying people" in terms
    assert "Forbidden: commercial use." in later


def test_a_check_says_what_a_file_is(references: Path) -> None:
    done = RUN.invoke(app, ["models", "check", str(references / "port" / "normal"), "--json"])
    facts = json.loads(done.output)
    assert (facts["head"], facts["outputs"], facts["image_size"]) == ("normal", 3, [128, 96])
    assert len(facts["digest"]) == 64
    text = RUN.invoke(app, ["models", "check", "demo"]).output
    assert "none (random weights)" in text


def test_a_check_of_released_weights_shows_their_terms_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SAPIENS_BATCH_ACCEPT_LICENCES", raising=False)
    done = RUN.invoke(app, ["models", "check", "facebook/sapiens2-pose-0.4b"])
    assert isinstance(done.exception, SpecError)
    assert "Forbidden: surveillance" in str(done.exception)
    assert "add `--accept-licence sapiens2`" in str(done.exception)
    assert "job file" not in str(done.exception)


def test_a_check_of_a_release_that_is_not_known_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAPIENS_BATCH_ACCEPT_LICENCES", raising=False)
    done = RUN.invoke(app, ["models", "check", "facebook/sapiens2-pose-9b"])
    assert isinstance(done.exception, SpecError)
    assert "no such release is known to this version" in str(done.exception)


def test_a_check_of_a_damaged_file_fails(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"<html>")
    done = RUN.invoke(app, ["models", "check", str(tmp_path)])
    assert isinstance(done.exception, WeightsError)
