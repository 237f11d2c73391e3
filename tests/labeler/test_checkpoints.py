"""Weights of tasks, and the terms that come with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapiens_batch.errors import SpecError, WeightsError
from sapiens_batch.labeler import Labeler, describe, require_acceptance, resolve
from sapiens_batch.models.licences import ACCEPT_VARIABLE
from sapiens_batch.spec.task import TaskSpec


@pytest.fixture(autouse=True)
def _nothing_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ACCEPT_VARIABLE, raising=False)


@pytest.fixture
def tasks(references: Path) -> dict[str, TaskSpec]:
    return {"pose": TaskSpec(checkpoint=str(references / "port" / "pose"))}


def test_released_weights_are_not_even_looked_for_before_their_terms_are_accepted() -> None:
    with pytest.raises(SpecError, match="Sapiens2 License"):
        resolve({"pose": TaskSpec(checkpoint="facebook/sapiens2-pose-0.4b")})


def test_a_local_file_in_the_released_layout_comes_under_the_same_terms(
    tasks: dict[str, TaskSpec],
) -> None:
    with pytest.raises(SpecError, match="accept_licences"):
        describe(tasks)
    with pytest.raises(SpecError, match=r'pass `accept_licences=\["sapiens2"\]`'):
        Labeler.load(tasks)


def test_acceptance_is_recorded_in_the_label_metadata(tasks: dict[str, TaskSpec]) -> None:
    metadata = describe(tasks, accepted=["sapiens2"])["pose"].schema.metadata
    assert metadata["licence"] == "Sapiens2 License"
    assert metadata["licence_accepted_by"] == "accept_licences"


def test_weights_resolved_once_need_no_second_acceptance(tasks: dict[str, TaskSpec]) -> None:
    checkpoints = resolve(tasks, accepted=["sapiens2"])
    labeler = Labeler.load(tasks, checkpoints=checkpoints, device="cpu")
    assert labeler.schemas["pose"].metadata["licence_accepted_by"] == "accept_licences"


def test_the_demo_has_no_terms() -> None:
    checkpoints = resolve({"pose": TaskSpec(checkpoint="demo")})
    record = require_acceptance(checkpoints, [])["pose"]
    assert (record.url, record.accepted_by) == ("", "")


def test_records_name_terms_and_where_they_were_accepted(
    tasks: dict[str, TaskSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ACCEPT_VARIABLE, "sapiens2")
    records = require_acceptance(resolve(tasks), [])
    assert records["pose"].accepted_by == ACCEPT_VARIABLE
    assert records["pose"].url.startswith("https://")


def test_a_release_for_another_task_is_refused_before_terms_and_download() -> None:
    with pytest.raises(WeightsError, match="serves seg"):
        resolve({"pose": TaskSpec(checkpoint="facebook/sapiens2-seg-0.4b")})


def test_a_release_that_is_not_known_is_said_to_be_so_with_the_terms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(ACCEPT_VARIABLE, raising=False)
    with pytest.raises(SpecError, match=r"no such release is known.*sapiens2-pose-5b"):
        resolve({"pose": TaskSpec(checkpoint="facebook/sapiens2-pose-9b")})
