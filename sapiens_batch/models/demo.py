"""A small model with seeded random weights, so that everything runs offline.

Its labels mean nothing. Every task gets its own head on one and the same encoder, so that the demo
shows encoder sharing too. The numbers depend on the seeds alone.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from sapiens_batch.models.configs import (
    EncoderConfig,
    HeadConfig,
    HeadKind,
    ModelConfig,
    grouped_kv_heads,
)

DEMO_ID: Final = "demo"
DEMO_WARNING: Final = "random weights, labels are meaningless"
_ENCODER_SEED = 20260423
_ENCODER: Final = EncoderConfig(
    name="demo",
    hidden=48,
    heads=3,
    head_dim=16,
    kv_heads=grouped_kv_heads(18, 3, 1),
    ffn_hidden=192,
)
_IMAGE_SIZE = (256, 192)
_OUT_CHANNELS: Final = {
    "pose": 308,
    "seg": 29,
    "normal": 3,
    "pointmap": 3,
    "matting": 4,
    "albedo": 3,
    "depth": 1,
}
_POSE_PREDICTOR_GAIN = 0.25  # keeps most peaks between 0 and 1, where real scores lie


def demo_config(head: HeadKind | None) -> ModelConfig:
    """The demo model for one kind of head, or its encoder alone."""
    return ModelConfig(
        encoder=_ENCODER,
        head=None if head is None else _demo_head(head),
        image_size=_IMAGE_SIZE,
    )


def _demo_head(kind: HeadKind) -> HeadConfig:
    deconv = kind in ("pose", "seg", "depth")
    with_scale = kind == "pointmap"
    return HeadConfig(
        kind=kind,
        in_channels=_ENCODER.hidden,
        out_channels=_OUT_CHANNELS[kind],
        upsample="deconv" if deconv else "pixel_shuffle",
        upsample_channels=(48, 32) if kind == "pose" else (32, 24, 16, 8),
        conv_channels=(32, 16) if kind == "pose" else (8,),
        conv_kernel=1 if deconv else 3,
        scale_channels=(16, 8) if with_scale else (),
        scale_hidden=(16,) if with_scale else (),
        scale_inputs=8 * 4 * 3 if with_scale else 0,
    )


def demo_tensors(shapes: Mapping[str, tuple[int, ...]], head: HeadKind | None) -> dict[str, Tensor]:
    """Random weights for the encoder (`head` is None) or a head.

    Args:
        shapes: Shape of every parameter by name; the numbers do not depend on their order.
        head: Whose parameters these are.
    """
    seed = _ENCODER_SEED if head is None else zlib.crc32(head.encode())
    generator = torch.Generator().manual_seed(seed)
    return {name: _draw(name, shapes[name], generator) for name in sorted(shapes)}


def _draw(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    # uniform with unit variance, from integers: the same bits on every machine
    steps = torch.randint(-(2**15), 2**15, shape, generator=generator)
    noise = steps / 2**15 * math.sqrt(3)
    if len(shape) == 1:
        return _vector(name, noise)
    if name.endswith("_token") or name.endswith("_tokens"):
        return noise
    fan_in = noise[0].numel()
    weight = noise / math.sqrt(fan_in)
    return weight * _POSE_PREDICTOR_GAIN if name == "conv_pose.weight" else weight


def _vector(name: str, noise: Tensor) -> Tensor:
    if name.endswith(("norm.weight", "ln1.weight", "ln2.weight", "gamma.weight")):
        return torch.ones_like(noise)
    if name == "scale_final_layer.3.bias":
        return torch.full_like(noise, 2.0)  # a positive focal scale whatever the image
    return noise / 50
