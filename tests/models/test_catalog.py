"""The list of released checkpoints against the modules, and the terms that come with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sapiens_batch.errors import SpecError, WeightsError
from sapiens_batch.models.catalog import (
    ENCODER_PARAMETERS,
    check_serves,
    head_parameters,
    released,
    releases,
    unknown_release,
)
from sapiens_batch.models.configs import SAPIENS2_ENCODERS, HeadKind, released_head
from sapiens_batch.models.configs_v1 import SAPIENS1_ENCODERS, released_v1_head
from sapiens_batch.models.encoder import Encoder
from sapiens_batch.models.encoder_v1 import EncoderV1
from sapiens_batch.models.heads import Head
from sapiens_batch.models.licences import (
    ACCEPT_VARIABLE,
    CC_BY_NC_4,
    SAPIENS2,
    accepted_by,
    licence_of_id,
)


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("name", sorted(ENCODER_PARAMETERS))
def test_the_listed_parameters_are_those_of_the_encoders(name: str) -> None:
    with torch.device("meta"):
        if name in SAPIENS2_ENCODERS:
            assert ENCODER_PARAMETERS[name] == count(Encoder(SAPIENS2_ENCODERS[name]))
        else:
            assert ENCODER_PARAMETERS[name] == count(EncoderV1(SAPIENS1_ENCODERS[name]))


@pytest.mark.parametrize("kind", ["pose", "seg", "normal", "pointmap", "albedo", "matting"])
def test_the_listed_parameters_are_those_of_the_heads(kind: HeadKind) -> None:
    for size in ("0.4b", "1b", "5b"):
        config = released_head(kind, size)
        with torch.device("meta"):
            assert head_parameters(config) == count(Head(config))


@pytest.mark.parametrize("kind", ["pose", "seg", "normal", "depth"])
def test_the_listed_parameters_are_those_of_the_first_generations_heads(kind: HeadKind) -> None:
    config = released_v1_head(kind, "0.6b")
    with torch.device("meta"):
        assert head_parameters(config) == count(Head(config))


def test_a_pretrained_encoder_of_the_first_generation_has_a_square_table_and_a_class_token() -> (
    None
):
    known = SAPIENS1_ENCODERS["sapiens-0.3b"]
    with torch.device("meta"):
        module = EncoderV1(replace(known, position_grid=(64, 64), has_class_token=True))
    listed = {release.id: release.parameters for release in releases()}
    assert listed["facebook/sapiens-pretrain-0.3b"] == count(module)


def test_released_checkpoints_are_listed_once_with_their_size() -> None:
    listed = {release.id: release for release in releases()}
    assert len(listed) == len(list(releases()))
    pose = listed["facebook/sapiens2-pose-0.8b"]
    assert pose.parameters == 814_283_520 + 34_421_300
    assert round(pose.file_gb, 2) == 3.39
    assert pose.memory_bfloat16_gb < pose.memory_float32_gb
    assert "facebook/sapiens2-matting-0.4b" not in listed


def test_terms_are_known_from_the_name_of_a_repository() -> None:
    assert licence_of_id("facebook/sapiens2-pose-0.4b") is SAPIENS2
    assert licence_of_id("facebook/sapiens-seg-1b") is CC_BY_NC_4
    assert licence_of_id("noahcao/sapiens-pose-coco") is CC_BY_NC_4
    assert licence_of_id("./models/pose.safetensors") is None
    for release in releases():
        assert licence_of_id(release.id) is release.licence


def test_a_refusal_shows_the_forbidden_uses_and_how_to_accept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(ACCEPT_VARIABLE, raising=False)
    with pytest.raises(SpecError) as refused:
        accepted_by(SAPIENS2, "facebook/sapiens2-pose-0.4b", ["cc-by-nc-4.0"])
    for part in ("surveillance", "biometric", "accept_licences: [sapiens2]", SAPIENS2.url):
        assert part in str(refused.value)


def test_terms_are_accepted_by_the_job_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ACCEPT_VARIABLE, "cc-by-nc-4.0, sapiens2")
    assert accepted_by(SAPIENS2, "x", ["sapiens2"]) == "accept_licences"
    assert accepted_by(CC_BY_NC_4, "x", []) == ACCEPT_VARIABLE


def test_an_id_that_is_not_known_is_told_with_the_nearest() -> None:
    assert "sapiens2-pose-5b" in unknown_release("facebook/sapiens2-pose-9b")
    assert "sapiens2-seg-0.4b" in unknown_release("facebook/sapiens2-sag-0.4b")
    assert released("facebook/sapiens2-pose-9b") is None


def test_other_forms_of_a_release_are_the_release() -> None:
    found = released("facebook/sapiens-seg-1b-torchscript")
    assert found is not None
    assert found.id == "facebook/sapiens-seg-1b"
    assert unknown_release("facebook/sapiens-seg-1b-torchscript") == ""


@pytest.mark.parametrize(
    "name",
    ["someone/sapiens2-pose-9b", "noahcao/sapiens-pose-coco", "facebook/sapiens-pose-bbox-detector",
     "./pose.safetensors", "demo"],
)  # fmt: skip
def test_ids_that_are_not_named_like_a_release_are_left_to_the_hub(name: str) -> None:
    assert (released(name), unknown_release(name)) == (None, "")


def test_a_folder_may_be_named_like_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "facebook" / "sapiens2-pose-9b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert unknown_release("facebook/sapiens2-pose-9b") == ""


def test_a_release_serves_its_own_tasks_only() -> None:
    check_serves("facebook/sapiens2-seg-0.4b", "embedding")
    with pytest.raises(
        WeightsError,
        match=r"tasks\.pose: facebook/sapiens2-seg-0\.4b serves seg, features, embedding, not "
        r"pose; for pose there are facebook/sapiens2-pose-0\.4b",
    ):
        check_serves("facebook/sapiens2-seg-0.4b", "pose")
    with pytest.raises(WeightsError, match="serves seg, features, not embedding"):
        check_serves("facebook/sapiens-seg-1b", "embedding")


@pytest.mark.parametrize(
    ("ask", "way"),
    [
        ("job_file", "put `accept_licences: [sapiens2]` into the job file"),
        ("argument", 'pass `accept_licences=["sapiens2"]`'),
        ("option", "add `--accept-licence sapiens2`"),
    ],
)
def test_a_refusal_names_the_way_to_accept_that_the_caller_has(
    monkeypatch: pytest.MonkeyPatch, ask: Any, way: str
) -> None:
    monkeypatch.delenv(ACCEPT_VARIABLE, raising=False)
    with pytest.raises(SpecError) as refused:
        accepted_by(SAPIENS2, "x", ["sapiens3"], ask=ask)
    assert f"To accept it {way} or set {ACCEPT_VARIABLE}=sapiens2" in str(refused.value)
    assert "('sapiens3' is no licence; there are sapiens2, cc-by-nc-4.0)" in str(refused.value)
