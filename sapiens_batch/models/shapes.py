"""Which configuration a weights file has: its tensor names and shapes, and what is said beside it.

Whatever the tensors tell is read from them, so fine-tuned variants load too; what is said beside
them must agree. Where the width is that of a released encoder its depth is expected as well, so
that a file that lost layers is found out. Encoders of Sapiens v1 are left to `shapes_v1`, reading
the files beside the weights to `described`, comparing the file with the modules to `weights`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

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
)
from sapiens_batch.models.described import Described
from sapiens_batch.models.shapes_v1 import encoder_v1_config, is_v1

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]

BACKBONE = "backbone."
HEAD = "decode_head."
POSE_HEAD_V1 = "head."
_PATCH_WEIGHT = "patch_embed.projection.weight"
_BLOCK = r"blocks\.(\d+)\."
_MASK_TOKENS = ("mask_token", "embeddings.mask_token")
"""Stands for hidden patches in pretraining; labeling hides none."""


def split_names(shapes: Shapes) -> tuple[dict[str, str], dict[str, str]]:
    """Names in the file of encoder and head tensors, keyed by their names in the modules.

    What labeling has no use for is left out.
    """
    prefix = BACKBONE if any(name.startswith(BACKBONE) for name in shapes) else ""
    head_prefix = HEAD if any(name.startswith(HEAD) for name in shapes) else POSE_HEAD_V1
    head = {name.removeprefix(head_prefix): name for name in shapes if name.startswith(head_prefix)}
    rest = (name for name in shapes if not name.startswith(head_prefix))
    encoder = {name.removeprefix(prefix): name for name in rest}
    for unused in _MASK_TOKENS:
        encoder.pop(unused, None)
    return encoder, head


def infer_config(shapes: Shapes, described: Described, *, where: str) -> ModelConfig:
    """The configuration of a weights file in the released layout.

    Args:
        shapes: Shape of every tensor by its name in the file.
        described: What is said beside the file.
        where: Names the file in messages.

    Raises:
        WeightsError: When these are not the tensors of a Sapiens2 or Sapiens v1 model, or what is
            said beside them is not of these weights.
    """
    encoder_names, head_names = split_names(shapes)
    encoder_shapes = {name: shapes[stored] for name, stored in encoder_names.items()}
    head_shapes = {name: shapes[stored] for name, stored in head_names.items()}
    encoder: EncoderConfig | EncoderV1Config
    if is_v1(encoder_shapes):
        encoder = encoder_v1_config(encoder_shapes, described, where)
        rows, columns = encoder.position_grid
        default_size = (rows * encoder.patch, columns * encoder.patch)
    else:
        encoder = _encoder_config(encoder_shapes, described, where)
        default_size = IMAGE_SIZE_4K if encoder.tokenizer_layers else IMAGE_SIZE
        _check_stated(encoder, described, where)
    head = _head_config(head_shapes, encoder.hidden, where) if head_shapes else None
    if head is not None and head.scale_hidden:
        head = replace(head, scale_activation=described.activation)
    return ModelConfig(
        encoder=encoder,
        head=head,
        image_size=described.image_size or default_size,
        pixel_mean=described.pixel_mean,
        pixel_std=described.pixel_std,
        pads=described.pads,
        names=described.names if head else None,
        flip_pairs=described.flip_pairs if head else None,
    ).checked(where)


def _encoder_config(shapes: Shapes, described: Described, where: str) -> EncoderConfig:
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
    released = _released(hidden, tokenizer_layers, described.layers)
    layers = described.layers or (released.layers if released else _count(shapes, _BLOCK))
    head_dim = _head_dim(shapes, hidden, released, described, where)
    heads = max(1, hidden // head_dim)
    full = released.kv_heads if released else (heads,) * layers
    ffn_hidden = shapes.get("blocks.0.ffn.w3.weight", (hidden, 4 * hidden))[-1]
    config = EncoderConfig(
        name="custom",
        hidden=hidden,
        heads=heads,
        head_dim=head_dim,
        # a layer that lost its tensor is told when the file is compared with the modules
        kv_heads=tuple(
            shapes.get(f"blocks.{layer}.attn.wk.weight", (full[layer] * head_dim,))[0] // head_dim
            for layer in range(layers)
        ),
        ffn_hidden=ffn_hidden,
        patch=patch,
        registers=shapes.get("storage_tokens", (1, 8, hidden))[1],
        tokenizer_layers=tokenizer_layers,
        attention_biases=(
            _has_bias(shapes, "wq"), _has_bias(shapes, "wk"), _has_bias(shapes, "wv"),
            _has_bias(shapes, "proj"),
        ),
        ffn_bias=_any(shapes, r"blocks\.\d+\.ffn\.w(12|3)\.bias"),
        gated=shapes.get("blocks.0.ffn.w12.weight", (2 * ffn_hidden,))[0] != ffn_hidden,
        qk_norm=_any(shapes, r"blocks\.\d+\.attn\.[qk]_norm\.weight"),
        activation=described.activation,
        rope_theta=described.rope_theta,
        norm_eps=described.norm_eps,
    )  # fmt: skip
    if released is not None and replace(config, name=released.name) == released:
        return released
    return config


def _released(hidden: int, tokenizer_layers: int, layers: int | None) -> EncoderConfig | None:
    """The released encoder of this width; another stated depth makes it none."""
    for known in SAPIENS2_ENCODERS.values():
        same = known.hidden == hidden and layers in (None, known.layers)
        if same and bool(known.tokenizer_layers) == bool(tokenizer_layers):
            return known
    return None


def _head_dim(
    shapes: Shapes, hidden: int, released: EncoderConfig | None, described: Described, where: str
) -> int:
    """Channels of a head: of the norms of queries, else as stated, else as released."""
    norm = shapes.get("blocks.0.attn.q_norm.weight")
    if norm is not None:
        return norm[-1]
    if described.heads is not None and hidden % described.heads == 0:
        return hidden // described.heads
    if released is not None:
        return released.head_dim
    raise WeightsError(
        f"{where} has width {hidden} and no norm of queries, so its tensors do not say how many "
        "attention heads it has: state num_attention_heads in a config.json beside it"
    )


def _has_bias(shapes: Shapes, layer: str) -> bool:
    return _any(shapes, rf"blocks\.\d+\.attn\.{layer}\.bias")


def _any(shapes: Shapes, regex: str) -> bool:
    return any(re.fullmatch(regex, name) for name in shapes)


def _check_stated(encoder: EncoderConfig, described: Described, where: str) -> None:
    """Compare what `config.json` says of the layout with the tensors.

    Raises:
        WeightsError: They differ; the file belongs to other weights.
    """
    of_query, of_key, of_value, of_output = encoder.attention_biases
    found: dict[str, object] = {
        "hidden_size": encoder.hidden,
        "intermediate_size": encoder.ffn_hidden,
        "patch_size": encoder.patch,
        "num_channels": 3,
        "num_register_tokens": encoder.registers,
        "num_key_value_heads_per_layer": list(encoder.kv_heads),
        "use_gated_mlp": encoder.gated,
        "use_qk_norm": encoder.qk_norm,
        "query_bias": of_query,
        "key_bias": of_key,
        "value_bias": of_value,
        "proj_bias": of_output,
        "mlp_bias": encoder.ffn_bias,
    }
    stated = dict(described.compared)
    if described.heads is not None:
        found["num_attention_heads"], stated["num_attention_heads"] = encoder.heads, described.heads
    for name, value in stated.items():
        same = value == found[name] or (name == "patch_size" and value == [found[name]] * 2)
        if not same:
            raise WeightsError(
                f"config.json of {where} says {name} {value}, the tensors have {found[name]}: "
                "give the config.json that belongs to these weights"
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
