"""Which configuration a weights file has, read from its tensor names and shapes.

Head widths and layer counts come from the file, so fine-tuned variants load too. Where the width is
that of a released encoder its depth is expected as well, so that a file that lost layers is found
out. Encoders of Sapiens v1 are left to `shapes_v1`, comparing the file with the modules to
`weights`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sapiens_batch.errors import WeightsError
from sapiens_batch.models.configs import (
    IMAGE_SIZE,
    IMAGE_SIZE_4K,
    SAPIENS2_ENCODERS,
    SAPIENS2_HEADS,
    EncoderConfig,
    EncoderV1Config,
    HeadConfig,
    HeadKind,
    ModelConfig,
    grouped_kv_heads,
)
from sapiens_batch.models.shapes_v1 import encoder_v1_config, is_v1

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]

BACKBONE = "backbone."
HEAD = "decode_head."
POSE_HEAD_V1 = "head."
_PATCH_WEIGHT = "patch_embed.projection.weight"


def split_names(shapes: Shapes) -> tuple[dict[str, str], dict[str, str]]:
    """Names in the file of encoder and head tensors, keyed by their names in the modules."""
    prefix = BACKBONE if any(name.startswith(BACKBONE) for name in shapes) else ""
    head_prefix = HEAD if any(name.startswith(HEAD) for name in shapes) else POSE_HEAD_V1
    head = {name.removeprefix(head_prefix): name for name in shapes if name.startswith(head_prefix)}
    rest = (name for name in shapes if not name.startswith(head_prefix))
    return {name.removeprefix(prefix): name for name in rest}, head


def infer_config(shapes: Shapes, described: Mapping[str, Any], *, where: str) -> ModelConfig:
    """The configuration of a weights file in the released layout.

    Args:
        shapes: Shape of every tensor by its name in the file.
        described: The `config.json` beside the file, or an empty mapping.
        where: Names the file in messages.

    Raises:
        WeightsError: When these are not the tensors of a Sapiens2 or Sapiens v1 model.
    """
    encoder_names, head_names = split_names(shapes)
    encoder_shapes = {name: shapes[stored] for name, stored in encoder_names.items()}
    head_shapes = {name: shapes[stored] for name, stored in head_names.items()}
    encoder: EncoderConfig | EncoderV1Config
    if is_v1(encoder_shapes):
        encoder = encoder_v1_config(encoder_shapes, described, _stated_size(described), where)
        rows, columns = encoder.position_grid
        default_size = (rows * encoder.patch, columns * encoder.patch)
    else:
        encoder = _encoder_config(encoder_shapes, described, where)
        default_size = IMAGE_SIZE_4K if encoder.tokenizer_layers else IMAGE_SIZE
    head = _head_config(head_shapes, encoder.hidden, where) if head_shapes else None
    size = _image_size(described, encoder.cell, default_size, where)
    return ModelConfig(encoder=encoder, head=head, image_size=size)


def _encoder_config(shapes: Shapes, described: Mapping[str, Any], where: str) -> EncoderConfig:
    patch_shape = shapes.get(_PATCH_WEIGHT, ())
    if len(patch_shape) != 4 or "cls_token" not in shapes:
        known = ", ".join(sorted(shapes)[:4]) or "none"
        raise WeightsError(
            f"{where} is not a Sapiens2 or Sapiens v1 model in the released layout: it needs the "
            f"tensors `{_PATCH_WEIGHT}` (C, 3, p, p) and `cls_token` or `pos_embed`, it starts "
            f"with {known}"
        )
    hidden, patch = patch_shape[0], patch_shape[2]
    tokenizer_layers = _count(shapes, r"tokenizer\.blocks\.(\d+)\.")
    layers = described.get("num_hidden_layers")
    for known_config in SAPIENS2_ENCODERS.values():
        same = known_config.hidden == hidden and layers in (None, known_config.layers)
        if same and bool(known_config.tokenizer_layers) == bool(tokenizer_layers):
            return known_config
    layers = layers or _count(shapes, r"blocks\.(\d+)\.")
    head_dim = shapes.get("blocks.0.attn.q_norm.weight", (64,))[-1]
    heads = max(1, hidden // head_dim)
    middle = shapes.get(f"blocks.{layers // 2}.attn.wk.weight", (hidden,))[0] // head_dim
    return EncoderConfig(
        name="custom",
        hidden=hidden,
        heads=heads,
        head_dim=head_dim,
        kv_heads=grouped_kv_heads(layers, heads, middle),
        ffn_hidden=shapes.get("blocks.0.ffn.w3.weight", (hidden, 4 * hidden))[-1],
        patch=patch,
        registers=shapes.get("storage_tokens", (1, 8, hidden))[1],
        tokenizer_layers=tokenizer_layers,
    )


def _head_config(shapes: Shapes, hidden: int, where: str) -> HeadConfig:
    kind, predictor = _head_kind(shapes, where)
    config = HeadConfig(
        kind=kind,
        in_channels=hidden,
        out_channels=shapes[f"{predictor}.weight"][0],
        upsample="pixel_shuffle",
        upsample_channels=_widths(shapes, "upsample_blocks.{}.0.weight", step=1, where=where),
        conv_channels=_widths(shapes, "conv_layers.{}.weight", step=3, where=where),
        conv_kernel=3,
        predictor=predictor,
    )
    if any(name.startswith("deconv_layers.") for name in shapes):
        widths = _widths(shapes, "deconv_layers.{}.weight", step=3, where=where, out_axis=1)
        return replace(config, upsample="deconv", upsample_channels=widths, conv_kernel=1)
    upsampled = tuple(width // 4 for width in config.upsample_channels)
    config = replace(config, upsample_channels=upsampled)
    if not any(name.startswith("scale_") for name in shapes):
        return config
    linear = _widths(shapes, "scale_final_layer.{}.weight", step=2, where=where, first=1)
    return replace(
        config,
        scale_channels=_widths(shapes, "scale_conv_layers.{}.weight", step=3, where=where),
        scale_hidden=linear[:-1],
        scale_inputs=shapes.get("scale_final_layer.1.weight", (0, 0))[1],
    )


def _head_kind(shapes: Shapes, where: str) -> tuple[HeadKind, str]:
    """What a head was trained for, and the name of its last layer.

    In Sapiens v1 the last layer of every dense head is called `conv_seg`; one channel is depth,
    three are normals.
    """
    if "final_layer.weight" in shapes:
        return "pose", "final_layer"
    kinds = [kind for kind in SAPIENS2_HEADS if f"conv_{kind}.weight" in shapes]
    if len(kinds) != 1:
        raise WeightsError(
            f"{where} has {len(kinds)} known heads, one is needed: looked for `{HEAD}conv_<task>."
            f"weight` with task one of {', '.join(SAPIENS2_HEADS)}, and `head.final_layer.weight`"
        )
    predictor = f"conv_{kinds[0]}"
    channels = shapes[f"{predictor}.weight"][0]
    by_channels: dict[int, HeadKind] = {1: "depth", 3: "normal"}
    kind = by_channels.get(channels, kinds[0]) if kinds[0] == "seg" else kinds[0]
    return kind, predictor


def _widths(
    shapes: Shapes, pattern: str, *, step: int, where: str, first: int = 0, out_axis: int = 0
) -> tuple[int, ...]:
    """Output channels of a chain of layers; a lost layer's from the input of the next one."""
    regex = re.escape(pattern).replace(r"\{\}", r"(\d+)")
    count = _count(shapes, regex)
    widths = []
    for index in range(first, count, step):
        name, following = pattern.format(index), pattern.format(index + step)
        if name in shapes:
            widths.append(shapes[name][out_axis])
        elif following in shapes:
            widths.append(shapes[following][1 - out_axis])
        else:
            raise WeightsError(f"{where} lacks `{HEAD}{name}` and `{HEAD}{following}`")
    return tuple(widths)


def _count(shapes: Shapes, regex: str) -> int:
    """One more than the largest number that the pattern finds at the start of a name."""
    matches = (re.match(regex, name) for name in shapes)
    return max((int(match[1]) + 1 for match in matches if match), default=0)


def _stated_size(described: Mapping[str, Any]) -> tuple[int, int] | None:
    stated = described.get("image_size")
    if stated is None:
        return None
    height, width = (stated, stated) if isinstance(stated, int) else stated
    return int(height), int(width)


def _image_size(
    described: Mapping[str, Any], cell: int, default: tuple[int, int], where: str
) -> tuple[int, int]:
    height, width = _stated_size(described) or default
    if height % cell or width % cell or min(height, width) <= 0:
        raise WeightsError(
            f"config.json of {where} states image_size {height} x {width}: both sides must be "
            f"multiples of {cell}"
        )
    return height, width
