"""Facts beside the weights: what `config.json` and `preprocessor_config.json` say.

Every field is known: it is used, compared with the tensors, or has no effect on labels. Any other
field is refused by name, because one that is silently left out gives wrong labels without a word.
What the tensors say themselves is left to `shapes`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from sapiens_batch.errors import WeightsError
from sapiens_batch.models.configs import (
    ACTIVATIONS,
    IMAGENET_MEAN,
    IMAGENET_STD,
    NORM_EPS,
    ROPE_THETA,
    Activation,
    Triple,
)

CONFIG_NAME: Final = "config.json"
PROCESSOR_NAME: Final = "preprocessor_config.json"

_WITHOUT_EFFECT: Final = frozenset({
    # training, and how results are returned
    "attention_dropout", "drop_path_rate", "initializer_range", "layerscale_value",
    "pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale", "semantic_loss_ignore_index",
    "reshape_hidden_states", "normalize_backbone_outputs", "out_features", "out_indices",
    "stage_names", "return_class_token", "return_dict", "output_hidden_states",
    "output_attentions", "use_cache", "use_mask_token", "problem_type", "label2id", "num_labels",
    "is_encoder_decoder", "chunk_size_feed_forward", "tie_word_embeddings", "torchscript",
    # where the file comes from
    "architectures", "model_type", "transformers_version", "dtype", "torch_dtype", "auto_map",
    "_name_or_path", "_commit_hash", "attn_implementation", "_attn_implementation",
    "_attn_implementation_autoset", "license", "tags",
    # layouts that every tensor shows
    "head_config", "num_key_value_attention_heads", "num_first_full_attention_layers",
    "num_last_full_attention_layers",
})  # fmt: skip
_COMPARED: Final = frozenset({
    "hidden_size", "intermediate_size", "patch_size", "num_channels", "num_register_tokens",
    "num_key_value_heads_per_layer", "use_gated_mlp", "use_qk_norm", "query_bias", "key_bias",
    "value_bias", "proj_bias", "mlp_bias",
})  # fmt: skip
_USED: Final = frozenset({
    "num_hidden_layers", "num_attention_heads", "rope_theta", "rms_norm_eps", "hidden_act",
    "image_size", "id2label", "flip_pairs",
})  # fmt: skip

_PROCESSOR_WITHOUT_EFFECT: Final = frozenset({
    "image_processor_type", "processor_class", "feature_extractor_type", "do_reduce_labels",
    "keypoint_heatmap_downscale_factor", "keypoint_heatmap_sigma", "crop_size",
    "default_to_square", "data_format", "input_data_format", "return_tensors", "device",
    "do_convert_rgb", "disable_grouping", "antialias", "auto_map", "_processor_class",
    "image_seq_length", "pad_size",
})  # fmt: skip
_PROCESSOR_USED: Final = frozenset({
    "size", "image_mean", "image_std", "do_pad", "do_resize", "do_rescale", "rescale_factor",
    "do_normalize", "resample", "do_center_crop",
})  # fmt: skip
_PROCESSOR_ONLY: Final[Mapping[str, object]] = {
    "do_resize": True,
    "do_center_crop": False,
    "do_rescale": True,
    "resample": 2,  # bilinear, as Pillow counts filters
}
_SWISH: Final = {"swish": "silu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What is said beside the weights, with the values of the released models where nothing is.

    Attributes:
        layers: Number of transformer blocks.
        heads: Query heads.
        rope_theta: Base of the rotary embedding's periods.
        norm_eps: Added to the mean square in the encoder's norms.
        activation: Of the gate of the feed-forward layers.
        image_size: (height, width) of the model input, px.
        pixel_mean: Subtracted from pixels in the 0 to 1 range, by channel R, G, B.
        pixel_std: What they are divided by after that.
        pads: Whether images are letterboxed rather than stretched.
        names: Names of classes or keypoints, by channel.
        flip_pairs: Channels of the left and the right of a pair.
        compared: Further fields of `config.json`, to be compared with the tensors.
    """

    layers: int | None = None
    heads: int | None = None
    rope_theta: float = ROPE_THETA
    norm_eps: float = NORM_EPS
    activation: Activation = "silu"
    image_size: tuple[int, int] | None = None
    pixel_mean: Triple = IMAGENET_MEAN
    pixel_std: Triple = IMAGENET_STD
    pads: bool | None = None
    names: tuple[str, ...] | None = None
    flip_pairs: tuple[tuple[int, int], ...] | None = None
    compared: Mapping[str, Any] = field(default_factory=dict)


def read_described(config: Path | None, processor: Path | None) -> Described:
    """Read the files beside some weights.

    Args:
        config: The `config.json`, where there is one.
        processor: The `preprocessor_config.json`, where there is one.

    Raises:
        WeightsError: A file is not JSON, or says something that is not known or cannot be done.
    """
    return Described(**(_of_config(config) | _of_processor(processor)))


def _of_config(path: Path | None) -> dict[str, Any]:
    stated = _read(path)
    _check_known(path, stated, _USED | _COMPARED | _WITHOUT_EFFECT)
    found: dict[str, Any] = {
        "layers": _number(path, stated, "num_hidden_layers", int),
        "heads": _number(path, stated, "num_attention_heads", int),
        "rope_theta": _number(path, stated, "rope_theta", float),
        "norm_eps": _number(path, stated, "rms_norm_eps", float),
        "activation": _activation(path, stated.get("hidden_act")),
        "image_size": _size(path, "image_size", stated.get("image_size")),
        "names": _names(path, stated.get("id2label")),
        "flip_pairs": _pairs(path, stated.get("flip_pairs")),
        "compared": {name: stated[name] for name in _COMPARED if stated.get(name) is not None},
    }
    return {name: value for name, value in found.items() if value is not None}


def _of_processor(path: Path | None) -> dict[str, Any]:
    stated = _read(path)
    _check_known(path, stated, _PROCESSOR_USED | _PROCESSOR_WITHOUT_EFFECT)
    for name, only in _PROCESSOR_ONLY.items():
        if stated.get(name, only) not in (only, None):
            _refuse(path, name, stated[name], f"only {json.dumps(only)} can be done")
    found: dict[str, Any] = {
        "image_size": _size(path, "size", stated.get("size")),
        "pads": stated.get("do_pad"),
    }
    if stated.get("do_normalize", True) is False:
        found |= {"pixel_mean": (0.0,) * 3, "pixel_std": (1.0,) * 3}
    else:
        found |= {
            "pixel_mean": _triple(path, stated, "image_mean"),
            "pixel_std": _triple(path, stated, "image_std"),
        }
    factor = 255.0 * (_number(path, stated, "rescale_factor", float) or 1 / 255)
    if abs(factor - 1) > 1e-6:  # (x f - mean) / std is (x / 255 - mean / 255f) / (std / 255f)
        for name, default in (("pixel_mean", IMAGENET_MEAN), ("pixel_std", IMAGENET_STD)):
            found[name] = tuple(one / factor for one in found[name] or default)
    return {name: value for name, value in found.items() if value is not None}


def _read(path: Path | None) -> Mapping[str, Any]:
    if path is None:
        return {}
    try:
        stated = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise WeightsError(f"{path} is not JSON ({error}): fetch it again or remove it") from error
    if not isinstance(stated, dict):
        raise WeightsError(f"{path} is not a JSON object: fetch it again or remove it")
    return stated


def _check_known(path: Path | None, stated: Mapping[str, Any], known: frozenset[str]) -> None:
    for name in sorted(stated.keys() - known):
        if stated[name] is not None:
            _refuse(
                path,
                name,
                stated[name],
                "this field is not known, and it may change labels; remove it if it does not",
            )


def _refuse(path: Path | None, name: str, value: object, why: str) -> NoReturn:
    raise WeightsError(f"{path}: {name} is {json.dumps(value)[:80]}: {why}")


def _number(
    path: Path | None, stated: Mapping[str, Any], name: str, kind: type[int] | type[float]
) -> Any:
    value = stated.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | kind) or value <= 0:
        _refuse(path, name, value, "a positive number is needed")
    return kind(value)


def _activation(path: Path | None, stated: object) -> str | None:
    name = _SWISH.get(stated, stated) if isinstance(stated, str) else stated
    if name is not None and name not in ACTIVATIONS:
        known = ", ".join(sorted({*ACTIVATIONS, *_SWISH}))
        _refuse(path, "hidden_act", stated, f"only {known} can be done")
    return name if isinstance(name, str) else None


def _size(path: Path | None, name: str, stated: Any) -> tuple[int, int] | None:
    if stated is None:
        return None
    sides = stated
    if isinstance(stated, int):
        sides = [stated, stated]
    elif isinstance(stated, dict):
        sides = [stated.get("height"), stated.get("width")]
    whole = isinstance(sides, list) and len(sides) == 2
    if not whole or not all(isinstance(one, int) and one > 0 for one in sides):
        _refuse(path, name, stated, "a height and a width in pixels are needed")
    return sides[0], sides[1]


def _triple(path: Path | None, stated: Mapping[str, Any], name: str) -> Triple | None:
    values = stated.get(name)
    if values is None:
        return None
    if isinstance(values, int | float):
        values = [values] * 3
    numbers = isinstance(values, list) and all(isinstance(one, int | float) for one in values)
    if not numbers or len(values) != 3 or (name == "image_std" and min(values) <= 0):
        _refuse(path, name, values, "three numbers are needed, deviations above 0")
    return float(values[0]), float(values[1]), float(values[2])


def _names(path: Path | None, stated: Any) -> tuple[str, ...] | None:
    """Names by channel; None where they only number the channels."""
    if stated is None:
        return None
    try:
        names = tuple(str(stated[str(channel)]) for channel in range(len(stated)))
    except (KeyError, TypeError):
        _refuse(path, "id2label", stated, "a name for each number from 0 on is needed")
    numbered = all(name == f"LABEL_{channel}" for channel, name in enumerate(names))
    return None if numbered else names


def _pairs(path: Path | None, stated: Any) -> tuple[tuple[int, int], ...] | None:
    if stated is None:
        return None
    try:
        pairs = tuple((int(left), int(right)) for left, right in stated)
    except (TypeError, ValueError):
        pairs = ((-1, -1),)
    flat = [channel for pair in pairs for channel in pair]
    if len(set(flat)) != len(flat) or any(channel < 0 for channel in flat):
        _refuse(path, "flip_pairs", stated, "pairs of different channels are needed")
    return pairs
