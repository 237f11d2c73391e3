"""Names and shapes against the published table of the released models, without any numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sapiens_batch.models.configs import (
    SAPIENS2_ENCODERS,
    HeadKind,
    grouped_kv_heads,
    released_head,
)
from sapiens_batch.models.encoder import Encoder
from sapiens_batch.models.heads import Head


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("name", "parameters", "tensors"),
    [
        ("sapiens2-0.1b", 113_993_472, 210),
        ("sapiens2-0.4b", 395_450_368, 414),
        ("sapiens2-0.8b", 814_283_520, 550),
        ("sapiens2-1b", 1_455_474_176, 686),
        ("sapiens2-1b-4k", 1_606_588_928, 744),
        ("sapiens2-5b", 5_066_902_976, 958),
    ],
)
def test_a_released_encoder_has_the_published_parameters_and_tensors(
    name: str, parameters: int, tensors: int
) -> None:
    with torch.device("meta"):
        encoder = Encoder(SAPIENS2_ENCODERS[name])
    assert count(encoder) == parameters
    assert len(encoder.state_dict()) == tensors


@pytest.mark.parametrize(
    ("kind", "counts"),
    [
        ("pose", (30_226_996, 34_421_300, 64_305_972, 53_295_668)),
        ("seg", (11_151_325, 13_248_477, 15_345_629, 22_685_661)),
        ("normal", (57_907_363, 70_293_923, 83_860_131, 249_455_299)),
        ("pointmap", (133_224_996, 153_082_660, 174_119_972, 281_442_884)),
        ("albedo", (57_910_163, 70_296_979, 83_863_443, 249_244_179)),
        ("matting", (None, None, 83_860_148, None)),
    ],
)
def test_a_released_head_has_the_published_parameters(
    kind: HeadKind, counts: tuple[int | None, ...]
) -> None:
    for size, parameters in zip(("0.4b", "0.8b", "1b", "5b"), counts, strict=True):
        if parameters is not None:
            with torch.device("meta"):
                assert count(Head(released_head(kind, size))) == parameters


def test_only_middle_layers_share_key_heads() -> None:
    assert grouped_kv_heads(18, 4) == (4,) * 8 + (2,) * 2 + (4,) * 8
    assert grouped_kv_heads(12, 12) == (12,) * 12


def test_an_encoder_names_its_tensors_as_the_released_files_do() -> None:
    with torch.device("meta"):
        shapes = {
            name: tuple(tensor.shape)
            for name, tensor in Encoder(SAPIENS2_ENCODERS["sapiens2-0.4b"]).state_dict().items()
        }
    assert shapes["patch_embed.projection.weight"] == (1024, 3, 16, 16)
    assert shapes["storage_tokens"] == (1, 8, 1024)
    assert shapes["rope_embed.periods"] == (16,)
    assert shapes["blocks.7.attn.wk.weight"] == (1024, 1024)
    assert shapes["blocks.8.attn.wk.weight"] == (512, 1024)
    assert shapes["blocks.8.attn.q_norm.weight"] == (64,)
    assert shapes["blocks.23.attn.gamma.weight"] == (1024,)
    assert shapes["blocks.0.ffn.w12.weight"] == (8192, 1024)
    assert shapes["ln1.weight"] == (1024,)
