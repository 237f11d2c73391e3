"""Each class of the transformers port, with random weights saved by it and loaded by us."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sapiens_batch.models.encoder import Stage
from sapiens_batch.models.weights import load_encoder, load_head, resolve_checkpoint

transformers = pytest.importorskip("transformers")

TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}
CPU = torch.device("cpu")
SIZE = (256, 192)
DECONV = {"upsample_out_channels": [20, 12], "conv_out_channels": [10, 8]}
SHUFFLE = {
    "use_pixel_shuffle": True,
    "upsample_out_channels": [16, 12, 10, 8],
    "upsample_kernel_sizes": [3, 3, 3, 3],
    "conv_out_channels": [8, 6],
    "conv_kernel_sizes": [3, 3],
}
SCALE = {"scale_conv_out_channels": [12, 6], "scale_final_hidden_sizes": [8, 5]}
HEADS: dict[str, tuple[str, dict[str, Any], int]] = {
    "Sapiens2ForPoseEstimation": ("pose", DECONV, 308),
    "Sapiens2ForSemanticSegmentation": ("seg", DECONV, 29),
    "Sapiens2ForNormalEstimation": ("normal", SHUFFLE, 3),
    "Sapiens2ForPointmapEstimation": ("pointmap", SHUFFLE | SCALE, 3),
    "Sapiens2ForImageMatting": ("matting", SHUFFLE, 4),
}


def config(**more: Any) -> Any:
    return transformers.Sapiens2Config(
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=18,
        num_attention_heads=4,
        num_key_value_attention_heads=2,
        image_size=list(SIZE),
        layerscale_value=0.3,
        initializer_range=0.1,
        **more,
    )


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Any]:
    """Makes a model of the port, with norms and biases that are not trivial, and saves it."""

    def make(name: str, settings: Any) -> Any:
        torch.manual_seed(0)
        model = getattr(transformers, name)(settings).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter.add_(0.1 * torch.randn_like(parameter))
        model.save_pretrained(tmp_path)
        return model

    return make


def pixels() -> Tensor:
    return torch.randn(2, 3, *SIZE, generator=torch.Generator().manual_seed(1))


def encode(path: Path, stages: tuple[Stage, ...] = ()) -> Any:
    encoder = load_encoder(
        resolve_checkpoint(str(path)), rope_dtype="float32", device=CPU, dtype=torch.float32
    )
    with torch.inference_mode():
        return encoder(pixels(), stages)


def test_the_bare_model(saved: Callable[..., Any], tmp_path: Path) -> None:
    model = saved("Sapiens2Model", config())
    with torch.inference_mode():
        expected = model(pixels()).last_hidden_state
    torch.testing.assert_close(encode(tmp_path).tokens, expected, **TOLERANCE)


@pytest.mark.parametrize("normalised", [True, False])
def test_the_backbone_with_its_stages(
    saved: Callable[..., Any], tmp_path: Path, normalised: bool
) -> None:
    settings = config(out_indices=[0, 3, 11], normalize_backbone_outputs=normalised)
    model = saved("Sapiens2Backbone", settings)
    with torch.inference_mode():
        expected = model(pixels()).feature_maps
    asked = (Stage(0, normalised), Stage(3, normalised), Stage(11, normalised))
    encoding = encode(tmp_path, asked)
    for stage, maps in zip(asked, expected, strict=True):
        found = encoding.feature_map(encoding.stages[stage])
        torch.testing.assert_close(found, maps, **TOLERANCE)


@pytest.mark.parametrize("name", sorted(HEADS))
def test_each_model_with_a_head(saved: Callable[..., Any], tmp_path: Path, name: str) -> None:
    kind, head_config, outputs = HEADS[name]
    model = saved(name, config(head_config=head_config, num_labels=outputs))
    with torch.inference_mode():
        expected = model(pixels())
    checkpoint = resolve_checkpoint(str(tmp_path))
    assert checkpoint.config.head.kind == kind
    assert checkpoint.config.image_size == SIZE
    with torch.inference_mode():
        output = load_head(checkpoint, device=CPU, dtype=torch.float32)(encode(tmp_path).features)
    raw = raw_maps(expected)
    torch.testing.assert_close(output.maps, raw, **TOLERANCE)
    if kind == "pointmap":
        torch.testing.assert_close(output.scale.flatten(), expected.scales.flatten(), **TOLERANCE)


def raw_maps(output: Any) -> Tensor:
    """The maps of an output of the port: one tensor, or foreground and alpha."""
    maps = [value for value in output.values() if torch.is_tensor(value) and value.ndim == 4]
    return torch.cat(sorted(maps, key=lambda value: -value.shape[1]), dim=1)
