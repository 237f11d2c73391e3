"""Every field beside the weights is used, compared with the tensors, or refused by its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sapiens_batch.errors import WeightsError
from sapiens_batch.models.described import Described, read_described
from sapiens_batch.models.weights import Checkpoint, resolve_checkpoint
from tests.models.conftest import Save, Tensors


@pytest.fixture
def folder(tensors: Tensors, save: Save) -> Path:
    """A tiny seg model without anything beside it."""
    return save(tensors).parent


def with_config(folder: Path, **stated: Any) -> Checkpoint:
    (folder / "config.json").write_text(json.dumps(stated))
    return resolve_checkpoint(str(folder))


def with_processor(folder: Path, **stated: Any) -> Checkpoint:
    (folder / "preprocessor_config.json").write_text(json.dumps(stated))
    return resolve_checkpoint(str(folder))


def test_nothing_beside_the_weights_gives_the_values_of_the_released_models() -> None:
    assert read_described(None, None) == Described()


def test_numbers_that_the_tensors_do_not_show_are_used(folder: Path) -> None:
    encoder = with_config(
        folder, rope_theta=1e4, rms_norm_eps=1e-5, hidden_act="gelu"
    ).config.encoder
    assert (encoder.rope_theta, encoder.norm_eps, encoder.activation) == (1e4, 1e-5, "gelu")


def test_a_fact_that_changes_labels_is_part_of_the_digest(folder: Path) -> None:
    digests = {
        resolve_checkpoint(str(folder)).digest,
        with_config(folder, rope_theta=50.0).digest,
        with_config(folder, id2label={str(index): f"part {index}" for index in range(29)}).digest,
        with_processor(folder, image_mean=[0.5, 0.5, 0.5]).digest,
    }
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("name", "stated", "found"),
    [
        ("hidden_size", 64, 48),
        ("intermediate_size", 96, 192),
        ("num_attention_heads", 4, 3),
        ("patch_size", 14, 16),
        ("num_channels", 1, 3),
        ("num_register_tokens", 4, 8),
        ("num_key_value_heads_per_layer", [3] * 18, [3] * 8 + [1] * 2 + [3] * 8),
        ("use_gated_mlp", False, True),
        ("use_qk_norm", False, True),
        ("query_bias", False, True),
        ("key_bias", False, True),
        ("value_bias", False, True),
        ("proj_bias", False, True),
        ("mlp_bias", False, True),
    ],
)
def test_what_differs_from_the_tensors_is_refused_with_both_values(
    folder: Path, name: str, stated: Any, found: Any
) -> None:
    with pytest.raises(WeightsError) as error:
        with_config(folder, **{name: stated})
    assert f"says {name} {stated}, the tensors have {found}" in str(error.value)
    assert with_config(folder, **{name: found}).config.image_size == (1024, 768)


def test_another_depth_than_that_of_the_tensors_is_refused(folder: Path) -> None:
    with pytest.raises(WeightsError, match=r"missing blocks\.18\."):
        with_config(folder, num_hidden_layers=19)
    with pytest.raises(WeightsError, match=r"extra blocks\.17\."):
        with_config(folder, num_hidden_layers=17)


@pytest.mark.parametrize("file", ["config.json", "preprocessor_config.json"])
def test_a_field_that_is_not_known_is_refused_by_its_name(folder: Path, file: str) -> None:
    (folder / file).write_text(json.dumps({"use_convolutions": True}))
    with pytest.raises(WeightsError, match=rf"{file}: use_convolutions is true.*not known"):
        resolve_checkpoint(str(folder))
    (folder / file).write_text(json.dumps({"use_convolutions": None}))
    assert resolve_checkpoint(str(folder)).config.encoder.layers == 18


@pytest.mark.parametrize(
    ("stated", "match"),
    [
        ({"rope_theta": -1}, "rope_theta is -1: a positive number"),
        ({"rms_norm_eps": "small"}, 'rms_norm_eps is "small": a positive number'),
        ({"num_hidden_layers": 2.5}, r"num_hidden_layers is 2\.5: a positive number"),
        ({"hidden_act": "quick_gelu"}, 'hidden_act is "quick_gelu": only gelu, .*silu'),
        ({"image_size": [96]}, r"image_size is \[96\]: a height and a width"),
        ({"id2label": {"1": "arm"}}, "a name for each number from 0 on"),
        ({"flip_pairs": [[0, 1], [1, 2]]}, "pairs of different channels"),
        ({"flip_pairs": 3}, "pairs of different channels"),
    ],
)
def test_a_value_of_the_config_that_cannot_be_is_refused(
    folder: Path, stated: dict[str, Any], match: str
) -> None:
    with pytest.raises(WeightsError, match=match):
        with_config(folder, **stated)


def test_names_and_pairs_are_kept_and_numbered_names_are_none(folder: Path) -> None:
    named = with_config(folder, id2label={"0": "sky", "1": "sea"}, flip_pairs=[[0, 1]]).config
    assert (named.names, named.flip_pairs) == (("sky", "sea"), ((0, 1),))
    numbered = {str(index): f"LABEL_{index}" for index in range(29)}
    assert with_config(folder, id2label=numbered).config.names is None


def test_the_processor_says_size_mean_and_deviation(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"image_size": 224}))
    config = with_processor(
        folder,
        size={"height": 640, "width": 480},
        image_mean=[0.1, 0.2, 0.3],
        image_std=0.5,
        do_pad=False,
    ).config
    assert config.image_size == (640, 480)
    assert (config.pixel_mean, config.pixel_std) == ((0.1, 0.2, 0.3), (0.5, 0.5, 0.5))
    assert config.pads is False


def test_pixels_that_are_not_normalised_or_scaled_otherwise_are_normalised_so(folder: Path) -> None:
    plain = with_processor(folder, do_normalize=False).config
    assert (plain.pixel_mean, plain.pixel_std) == ((0, 0, 0), (1, 1, 1))
    # of 0 to 510 instead of 0 to 255, so mean and deviation count half in the 0 to 1 range
    scaled = with_processor(
        folder, rescale_factor=2 / 255, image_mean=[0.5] * 3, image_std=[0.25] * 3
    ).config
    assert scaled.pixel_mean == pytest.approx((0.25,) * 3)
    assert scaled.pixel_std == pytest.approx((0.125,) * 3)


@pytest.mark.parametrize(
    ("stated", "match"),
    [
        ({"do_resize": False}, "do_resize is false: only true"),
        ({"do_rescale": False}, "do_rescale is false: only true"),
        ({"do_center_crop": True}, "do_center_crop is true: only false"),
        ({"resample": 3}, "resample is 3: only 2"),
        ({"image_std": [0.2, 0.2, 0.0]}, "three numbers are needed"),
        ({"image_mean": [0.2, 0.2]}, "three numbers are needed"),
        ({"size": {"shortest_edge": 640}}, "a height and a width"),
        ({"size": {"height": 650, "width": 480}}, "multiples of 16"),
    ],
)
def test_a_value_of_the_processor_that_cannot_be_done_is_refused(
    folder: Path, stated: dict[str, Any], match: str
) -> None:
    with pytest.raises(WeightsError, match=match):
        with_processor(folder, **stated)


@pytest.mark.parametrize("content", ["{", "[]", "[" * 100_000, "\ud800"])
def test_a_file_that_is_no_json_object_is_refused(folder: Path, content: str) -> None:
    (folder / "config.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(WeightsError, match=r"config\.json is not .*JSON"):
        resolve_checkpoint(str(folder))


@pytest.mark.parametrize("name", ["mask_token", "embeddings.mask_token"])
def test_the_mask_token_of_pretraining_is_accepted_and_unused(
    tensors: Tensors, save: Save, name: str
) -> None:
    without = resolve_checkpoint(str(save(tensors)))
    tensors[f"backbone.{name}"] = tensors["backbone.cls_token"].clone()
    with_token = resolve_checkpoint(str(save(tensors, "with.safetensors")))
    assert with_token.config == without.config
    assert with_token.encoder_sha256 == without.encoder_sha256
