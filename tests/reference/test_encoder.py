"""The encoder against the transformers port and the original code, on the same pixel values."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from sapiens_batch.models.configs import RopeDtype
from sapiens_batch.models.encoder import Stage
from sapiens_batch.models.layers import RotaryEmbedding
from tests.reference.conftest import LoadGolden

TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


def test_tokens_and_class_token_equal_the_ports(
    golden: LoadGolden, pixels: dict[str, Tensor]
) -> None:
    case = golden("pretrain")
    encoding = case.encode(pixels["stretch"])
    torch.testing.assert_close(encoding.tokens, case.expected["last_hidden_state"], **TOLERANCE)
    torch.testing.assert_close(encoding.cls, case.expected["cls"], **TOLERANCE)


def test_another_aspect_ratio_gives_the_ports_tokens(golden: LoadGolden) -> None:
    case = golden("pretrain")
    encoding = case.encode(case.expected["rect_pixel_values"])
    assert encoding.grid == (8, 20)
    expected = case.expected["rect_last_hidden_state"]
    torch.testing.assert_close(encoding.tokens, expected, **TOLERANCE)


def test_intermediate_stages_equal_the_ports_normalised_features(
    golden: LoadGolden, pixels: dict[str, Tensor]
) -> None:
    case = golden("pretrain")
    asked = [Stage(layer) for layer in (4, 12, 18)]
    encoding = case.encode(pixels["stretch"], stages=asked)
    for stage, tokens in encoding.stages.items():
        expected = case.expected[f"feature_stage{stage.layer}"]
        torch.testing.assert_close(encoding.feature_map(tokens), expected, **TOLERANCE)
        cls = case.expected[f"cls_stage{stage.layer}"]
        torch.testing.assert_close(tokens[:, 0], cls, **TOLERANCE)
    assert list(encoding.stages) == asked


@pytest.mark.parametrize(
    ("rope_dtype", "variant", "bound"),
    [("float32", "fp32rope", 1e-4), ("bfloat16", "bf16rope", 2e-2)],
)
def test_stages_before_the_norm_equal_the_original_codes_blocks(
    original: LoadGolden,
    original_inputs: dict[str, Tensor],
    rope_dtype: RopeDtype,
    variant: str,
    bound: float,
) -> None:
    case = original("sapiens2_encoder")
    asked = [Stage(layer, normalised=False) for layer in (8, 9, 10, 17)]
    encoding = case.encode(original_inputs["x_128x96"], rope_dtype=rope_dtype, stages=asked)
    for stage, tokens in encoding.stages.items():
        expected = case.expected[f"block{stage.layer - 1}_{variant}"]
        scale = expected.abs().mean().item()
        torch.testing.assert_close(tokens, expected, rtol=bound, atol=bound * max(1, scale))


@pytest.mark.parametrize(
    ("rope_dtype", "variant", "bound"),
    [("float32", "fp32rope", 1e-4), ("bfloat16", "bf16rope", 2e-2)],
)
def test_tokens_equal_the_original_code_in_either_rotary_precision(
    original: LoadGolden,
    original_inputs: dict[str, Tensor],
    rope_dtype: RopeDtype,
    variant: str,
    bound: float,
) -> None:
    case = original("sapiens2_encoder")
    encoding = case.encode(original_inputs["x_128x96"], rope_dtype=rope_dtype)
    expected = case.expected[f"tokens_{variant}"]
    torch.testing.assert_close(encoding.tokens, expected, rtol=bound, atol=bound)


def test_the_window_tokenizer_equals_the_original_code(
    original: LoadGolden, original_inputs: dict[str, Tensor]
) -> None:
    case = original("sapiens2_encoder_4k")
    encoding = case.encode(original_inputs["x_256x192"])
    assert encoding.grid == (4, 3)
    torch.testing.assert_close(encoding.tokens, case.expected["tokens_fp32rope"], **TOLERANCE)


@pytest.mark.parametrize("head_dim", [64, 76, 80])
def test_bfloat16_rotary_tables_equal_the_original_bit_for_bit(
    references: Path, head_dim: int
) -> None:
    tables = load_file(references / "original" / "sapiens2_rope_tables" / "expected.safetensors")
    rope = RotaryEmbedding(head_dim, dtype="bfloat16")
    rope.periods.copy_(tables[f"d{head_dim}_periods_fp32"])
    sin, cos = rope((64, 48))
    index = tables["token_index_64x48"]
    assert torch.equal(sin[index], tables[f"d{head_dim}_sin_bf16_64x48"])
    assert torch.equal(cos[index], tables[f"d{head_dim}_cos_bf16_64x48"])


@pytest.mark.parametrize("head_dim", [64, 76, 80])
def test_float32_rotary_tables_equal_the_original(references: Path, head_dim: int) -> None:
    tables = load_file(references / "original" / "sapiens2_rope_tables" / "expected.safetensors")
    sin, cos = RotaryEmbedding(head_dim, dtype="float32")((64, 48))
    index = tables["token_index_64x48"]
    torch.testing.assert_close(sin[index], tables[f"d{head_dim}_sin_fp32_64x48"], **TOLERANCE)
    torch.testing.assert_close(cos[index], tables[f"d{head_dim}_cos_fp32_64x48"], **TOLERANCE)
