"""Sapiens v1 against the original code: encoders, position tables, heads, and all file forms."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from sapiens_batch.models.configs import EncoderV1Config, HeadKind
from sapiens_batch.models.encoder_v1 import EncoderV1, resize_positions
from sapiens_batch.models.weights import Checkpoint, load_encoder, load_head, resolve_checkpoint
from sapiens_batch.records import ViewKind
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.tasks import TASKS

TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}
CPU = torch.device("cpu")
HEADS: list[tuple[HeadKind, int]] = [("pose", 2), ("seg", 0), ("normal", 2), ("depth", 0)]


@pytest.fixture
def folder(references: Path) -> Path:
    return references / "original"


def resolved(
    folder: Path, tmp_path: Path, size: tuple[int, int], *, file: str = "weights.safetensors"
) -> Checkpoint:
    """A case's weights with the facts beside them that the file does not hold."""
    shutil.copy(folder / file, tmp_path / file)
    facts = {"num_attention_heads": 2, "image_size": list(size)}
    (tmp_path / "config.json").write_text(json.dumps(facts))
    return resolve_checkpoint(str(tmp_path / file))


def features(checkpoint: Checkpoint, pixels: Tensor, padding: int | None = None) -> Tensor:
    encoder = load_encoder(
        checkpoint, rope_dtype="float32", device=CPU, dtype=torch.float32, patch_padding=padding
    )
    with torch.inference_mode():
        return encoder(pixels).features


@pytest.mark.parametrize("padding", [0, 2])
def test_feature_maps_equal_the_originals_with_either_patch_padding(
    folder: Path, original_inputs: dict[str, Tensor], tmp_path: Path, padding: int
) -> None:
    checkpoint = resolved(folder / "sapiens1_encoder", tmp_path, (128, 96))
    expected = load_file(folder / "sapiens1_encoder" / "expected.safetensors")
    found = features(checkpoint, original_inputs["x_128x96"], padding)
    torch.testing.assert_close(found, expected[f"featmap_pad{padding}"], **TOLERANCE)
    other = features(checkpoint, original_inputs["x_192x144"][:1, :, :160, :128], padding)
    torch.testing.assert_close(other, expected[f"featmap_pad{padding}_160x128"], **TOLERANCE)


def test_the_original_fills_the_last_patches_of_odd_sizes_with_zeros(
    folder: Path, original_inputs: dict[str, Tensor], tmp_path: Path
) -> None:
    """Views are whole numbers of patches here; its 120 x 90 input is one of 128 x 96."""
    checkpoint = resolved(folder / "sapiens1_encoder", tmp_path, (128, 96))
    expected = load_file(folder / "sapiens1_encoder" / "expected.safetensors")
    filled = F.pad(original_inputs["x_128x96"][:1, :, :120, :90], (0, 6, 0, 8))
    found = features(checkpoint, filled, 0)
    torch.testing.assert_close(found, expected["featmap_pad0_120x90"], **TOLERANCE)


def test_pretrained_encoders_have_a_class_token(
    folder: Path, original_inputs: dict[str, Tensor], tmp_path: Path
) -> None:
    checkpoint = resolved(folder / "sapiens1_pretrain_cls", tmp_path, (128, 128))
    expected = load_file(folder / "sapiens1_pretrain_cls" / "expected.safetensors")
    encoder = load_encoder(checkpoint, rope_dtype="float32", device=CPU, dtype=torch.float32)
    with torch.inference_mode():
        encoding = encoder(original_inputs["x_128x128"])
    torch.testing.assert_close(encoding.tokens, expected["tokens"], **TOLERANCE)
    torch.testing.assert_close(encoding.cls, expected["cls"], **TOLERANCE)
    torch.testing.assert_close(encoding.features, expected["featmap"], **TOLERANCE)


@pytest.mark.parametrize("grid", [(8, 6), (12, 9)])
def test_position_tables_are_resized_as_in_the_original(
    folder: Path, grid: tuple[int, int]
) -> None:
    table = load_file(folder / "sapiens1_pretrain_cls" / "weights.safetensors")["pos_embed"]
    expected = load_file(folder / "sapiens1_pos_embed_resize" / "expected.safetensors")
    resized = resize_positions(table, (8, 8), grid)
    torch.testing.assert_close(resized[:, 1:], expected[f"pos_embed_{grid[0]}x{grid[1]}"])
    assert torch.equal(resized[:, :1], table[:, :1])


@pytest.mark.parametrize("padding", [0, 2])
def test_pretrained_weights_without_their_class_token_give_the_originals_features(
    folder: Path, original_inputs: dict[str, Tensor], padding: int
) -> None:
    weights = load_file(folder / "sapiens1_pretrain_cls" / "weights.safetensors")
    expected = load_file(folder / "sapiens1_pos_embed_resize" / "expected.safetensors")
    del weights["cls_token"]
    weights["pos_embed"] = weights["pos_embed"][:, 1:]
    config = EncoderV1Config(
        name="custom",
        hidden=16,
        layers=2,
        heads=2,
        ffn_hidden=64,
        position_grid=(8, 8),
        has_class_token=False,
    )
    encoder = EncoderV1(config, patch_padding=padding)
    encoder.load_state_dict(weights)
    with torch.inference_mode():
        found = encoder(original_inputs["x_128x96"]).features
    torch.testing.assert_close(found, expected[f"featmap_pad{padding}"], **TOLERANCE)


@pytest.mark.parametrize("file", ["weights.safetensors", "checkpoint.pth"])
@pytest.mark.parametrize(("kind", "padding"), HEADS)
def test_raw_maps_equal_the_originals_from_either_file(
    folder: Path,
    original_inputs: dict[str, Tensor],
    tmp_path: Path,
    kind: HeadKind,
    padding: int,
    file: str,
) -> None:
    case = folder / f"sapiens1_{kind}"
    checkpoint = resolved(case, tmp_path, (64, 48), file=file)
    assert checkpoint.config.head.kind == kind
    assert checkpoint.patch_padding == padding
    assert checkpoint.licence == "CC BY-NC 4.0"
    expected = load_file(case / "expected.safetensors")["raw"]
    head = load_head(checkpoint, device=CPU, dtype=torch.float32)
    with torch.inference_mode():
        output = head(features(checkpoint, original_inputs["x_64x48"][: len(expected)]))
    torch.testing.assert_close(output.maps, expected, **TOLERANCE)


def test_a_checkpoint_with_training_logs_reads_like_one_without(folder: Path) -> None:
    """Its metadata names numpy and training classes that are not installed; none is imported."""
    from sapiens_batch.models.tensor_files import open_tensors

    plain = load_file(folder / "sapiens1_pose" / "weights.safetensors")
    with open_tensors(folder / "sapiens1_pose" / "checkpoint_with_message_hub.pth") as file:
        assert sorted(file.shapes) == sorted(name for name in plain if name.startswith("head."))
        for name in file.shapes:
            assert torch.equal(file.read(name, CPU), plain[name])


@pytest.mark.parametrize("kind", ["seg", "normal", "depth"])
def test_dense_tasks_look_at_the_stretched_image_as_the_original_does(
    folder: Path, tmp_path: Path, kind: HeadKind
) -> None:
    checkpoint = resolved(folder / f"sapiens1_{kind}", tmp_path, (64, 48))
    task = TASKS[kind](TaskSpec(checkpoint=checkpoint.id), checkpoint)
    assert task.view_spec.kind is ViewKind.STRETCH
    assert task.view_spec.variant == "v1"
    assert str(task.preprocess) == "original"
