"""Raw head outputs against the transformers port and the original code, on the same pixels."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sapiens_batch.models.configs import RopeDtype
from tests.reference.conftest import LoadGolden

TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.mark.parametrize(
    ("name", "view", "key"),
    [
        ("pose", "crops", "heatmaps"),
        ("seg", "stretch", "logits"),
        ("normal", "letterbox", "raw"),
        ("pointmap", "letterbox", "raw"),
    ],
)
def test_raw_maps_equal_the_ports(
    golden: LoadGolden, pixels: dict[str, Tensor], name: str, view: str, key: str
) -> None:
    case = golden(name)
    expected = case.expected[key]
    output = case.outputs(pixels[view][: len(expected)]).head
    torch.testing.assert_close(output.maps, expected, **TOLERANCE)


def test_focal_scales_equal_the_ports(golden: LoadGolden, pixels: dict[str, Tensor]) -> None:
    case = golden("pointmap")
    output = case.outputs(pixels["letterbox"]).head
    torch.testing.assert_close(output.scale, case.expected["scales"], **TOLERANCE)


@pytest.mark.parametrize("name", ["pose", "seg", "normal", "matting", "albedo"])
@pytest.mark.parametrize(
    ("rope_dtype", "variant", "bound"),
    [("float32", "fp32rope", 1e-4), ("bfloat16", "bf16rope", 2e-2)],
)
def test_raw_maps_equal_the_original_codes(
    original: LoadGolden,
    original_inputs: dict[str, Tensor],
    name: str,
    rope_dtype: RopeDtype,
    variant: str,
    bound: float,
) -> None:
    case = original(f"sapiens2_{name}")
    expected = case.expected[f"raw_{variant}"]
    small = name in ("pose", "seg")
    inputs = original_inputs["x_48x32" if small else "x_64x48"][: len(expected)]
    output = case.outputs(inputs, rope_dtype=rope_dtype).head
    torch.testing.assert_close(output.maps, expected, rtol=bound, atol=bound)


def test_pointmaps_equal_the_original_codes(
    original: LoadGolden, original_inputs: dict[str, Tensor]
) -> None:
    case = original("sapiens2_pointmap")
    output = case.outputs(original_inputs["x_192x144"]).head
    torch.testing.assert_close(output.scale, case.expected["scale_fp32rope"], **TOLERANCE)
    rounded = case.outputs(original_inputs["x_192x144"][:1], rope_dtype="bfloat16").head
    bound = {"rtol": 2e-2, "atol": 2e-2}
    torch.testing.assert_close(rounded.maps, case.expected["raw_bf16rope"], **bound)
