"""The released sizes of Sapiens v1.

Plain values; the types are in `configs`. A file of the first generation does not say how its
patches were padded in training, nor how many heads its attention has: both are looked up here.
Sizes are (height, width).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from sapiens_batch.models.configs import EncoderV1Config, HeadConfig, HeadKind

TASK_GRID: Final = (64, 48)

PATCH_PADDING: Final = MappingProxyType[HeadKind | None, int](
    {"pose": 2, "normal": 2, "seg": 0, "depth": 0, None: 0}
)
"""Zeros around the image before patches are cut, by what the weights were trained for."""


def _released(name: str, hidden: int, layers: int, heads: int) -> EncoderV1Config:
    return EncoderV1Config(
        name=name,
        hidden=hidden,
        layers=layers,
        heads=heads,
        ffn_hidden=4 * hidden,
        position_grid=TASK_GRID,
        has_class_token=False,
    )


SAPIENS1_ENCODERS: Final = MappingProxyType(
    {
        config.name: config
        for config in (
            _released("sapiens-0.3b", 1024, 24, 16),
            _released("sapiens-0.6b", 1280, 32, 16),
            _released("sapiens-1b", 1536, 40, 24),
            _released("sapiens-2b", 1920, 48, 32),
        )
    }
)
"""Encoders as task models have them; pretrained ones add a class token and a square grid."""

_DECONVS: Final = {
    "pose": (768, 768),
    "seg": (768, 768, 768),
    "normal": (768, 768, 768),
    "depth": (384, 384, 384, 384),
}
_CONVS: Final = {
    "pose": (768, 768),
    "seg": (768, 768, 768),
    "normal": (768, 768, 768),
    "depth": (384, 384),
}
_OUT_CHANNELS: Final = {"pose": 308, "seg": 28, "normal": 3, "depth": 1}


def released_v1_head(kind: HeadKind, size: str, *, out_channels: int | None = None) -> HeadConfig:
    """Head of a released size, for example `released_v1_head("pose", "0.3b", out_channels=17)`.

    Args:
        kind: `pose`, `seg`, `normal` or `depth`.
        size: `0.3b`, `0.6b`, `1b` or `2b`.
        out_channels: Keypoints or classes; 308 and 28 unless given.
    """
    return HeadConfig(
        kind=kind,
        in_channels=SAPIENS1_ENCODERS[f"sapiens-{size}"].hidden,
        out_channels=_OUT_CHANNELS[kind] if out_channels is None else out_channels,
        upsample="deconv",
        upsample_channels=_DECONVS[kind],
        conv_channels=_CONVS[kind],
        conv_kernel=1,
        predictor="final_layer" if kind == "pose" else "conv_seg",
    )
