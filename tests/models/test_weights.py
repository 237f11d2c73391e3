"""Finding, identifying and strictly loading weights files."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch

from sapiens_batch.errors import WeightsError
from sapiens_batch.models.configs import SAPIENS2_ENCODERS, HeadConfig
from sapiens_batch.models.described import Described
from sapiens_batch.models.encoder import Encoder
from sapiens_batch.models.heads import Head
from sapiens_batch.models.shapes import infer_config
from sapiens_batch.models.weights import (
    check_shapes,
    load_encoder,
    load_head,
    resolve_checkpoint,
)
from tests.models.conftest import Save, Tensors

CPU = torch.device("cpu")


def test_the_configuration_is_read_from_the_shapes(tensors: Tensors, save: Save) -> None:
    config = resolve_checkpoint(str(save(tensors))).config
    assert (config.encoder.name, config.encoder.layers, config.encoder.heads) == ("custom", 18, 3)
    assert config.encoder.kv_heads == (3,) * 8 + (1, 1) + (3,) * 8
    assert config.head == HeadConfig(
        kind="seg",
        in_channels=48,
        out_channels=29,
        upsample="deconv",
        upsample_channels=(32, 24, 16, 8),
        conv_channels=(8,),
        conv_kernel=1,
    )
    assert config.image_size == (1024, 768)


def test_the_image_size_comes_from_the_config_beside_the_file(
    tensors: Tensors, save: Save, tmp_path: Path
) -> None:
    save(tensors)
    (tmp_path / "config.json").write_text(json.dumps({"image_size": [128, 96]}))
    assert resolve_checkpoint(str(tmp_path)).config.image_size == (128, 96)


def test_an_image_size_that_is_not_whole_patches_is_refused(
    tensors: Tensors, save: Save, tmp_path: Path
) -> None:
    save(tensors)
    (tmp_path / "config.json").write_text(json.dumps({"image_size": [130, 96]}))
    with pytest.raises(WeightsError, match="multiples of 16"):
        resolve_checkpoint(str(tmp_path))


def test_loading_gives_the_very_tensors_of_the_file(tensors: Tensors, save: Save) -> None:
    checkpoint = resolve_checkpoint(str(save(tensors)))
    head = load_head(checkpoint, device=CPU, dtype=torch.float32)
    for name, tensor in head.state_dict().items():
        assert torch.equal(tensor, tensors[f"decode_head.{name}"])
    encoder = load_encoder(checkpoint, rope_dtype="float32", device=CPU, dtype=torch.float32)
    for name, tensor in encoder.state_dict().items():
        if ".fused." not in name:
            assert torch.equal(tensor, tensors[f"backbone.{name}"])
            continue
        parts = [tensors[f"backbone.{name}".replace("fused", part)] for part in ("wq", "wk", "wv")]
        assert torch.equal(tensor, torch.cat(parts))


def test_a_file_without_rotary_periods_loads_as_well(tensors: Tensors, save: Save) -> None:
    periods = tensors.pop("backbone.rope_embed.periods")
    checkpoint = resolve_checkpoint(str(save(tensors)))
    encoder = load_encoder(checkpoint, rope_dtype="float32", device=CPU, dtype=torch.float32)
    torch.testing.assert_close(encoder.rope_embed.periods, periods)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16, torch.float64])
def test_files_of_any_precision_load_in_the_one_asked_for(
    tensors: Tensors, save: Save, precision: torch.dtype
) -> None:
    path = save({name: tensor.to(precision) for name, tensor in tensors.items()})
    head = load_head(resolve_checkpoint(str(path)), device=CPU, dtype=torch.float32)
    stored = tensors["decode_head.conv_seg.weight"].to(precision).float()
    assert head.conv_seg.weight.dtype == torch.float32
    assert torch.equal(head.conv_seg.weight, stored)


def test_every_missing_extra_and_misshaped_tensor_is_named(tensors: Tensors, save: Save) -> None:
    del tensors["backbone.blocks.9.attn.wk.bias"]
    del tensors["decode_head.deconv_layers.3.weight"]
    tensors["backbone.blocks.3.surplus"] = torch.zeros(2)
    tensors["backbone.blocks.4.ln2.weight"] = torch.zeros(47)
    with pytest.raises(WeightsError) as error:
        resolve_checkpoint(str(save(tensors)))
    message = str(error.value)
    assert "4 tensors differ" in message
    assert "missing blocks.9.attn.wk.bias (16,)" in message
    assert "missing decode_head.deconv_layers.3.weight (32, 24, 4, 4)" in message
    assert "extra blocks.3.surplus (2,)" in message
    assert "misshaped blocks.4.ln2.weight: (47,), should be (48,)" in message


def test_a_file_that_lost_its_last_layer_is_found_out() -> None:
    with torch.device("meta"):
        encoder = Encoder(SAPIENS2_ENCODERS["sapiens2-0.1b"])
    shapes = {
        name: tuple(tensor.shape)
        for name, tensor in encoder.state_dict().items()
        if not name.startswith("blocks.11.")
    }
    config = infer_config(shapes, Described(), where="it")
    with pytest.raises(WeightsError, match=r"sapiens2-0\.1b: 17 tensors differ"):
        check_shapes(shapes, config, where="it")


def test_a_truncated_file_is_named(tensors: Tensors, save: Save) -> None:
    path = save(tensors)
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(WeightsError, match=r"model\.safetensors cannot be read"):
        resolve_checkpoint(str(path))


def test_a_file_that_is_no_safetensors_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(WeightsError, match=r"model\.safetensors cannot be read"):
        resolve_checkpoint(str(path))


@pytest.mark.parametrize("name", ["model.pth", "model.bin", "model.pt"])
def test_pickles_of_the_old_layout_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(pickle.dumps({}))
    with pytest.raises(WeightsError, match="opening one runs what is in it"):
        resolve_checkpoint(str(tmp_path / name))


def test_a_file_of_another_kind_is_refused_by_its_suffix(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    with pytest.raises(WeightsError, match="no weights file"):
        resolve_checkpoint(str(tmp_path / "model.onnx"))


def test_other_models_are_refused(save: Save) -> None:
    path = save({"model.embed.weight": torch.zeros(3, 3)})
    with pytest.raises(WeightsError, match="not a Sapiens2 or Sapiens v1 model"):
        resolve_checkpoint(str(path))


def test_quantised_weights_are_refused(tensors: Tensors, save: Save) -> None:
    tensors["backbone.ln1.weight"] = torch.zeros(48, dtype=torch.int8)
    with pytest.raises(WeightsError, match="quantised"):
        resolve_checkpoint(str(save(tensors)))


def test_a_folder_with_several_files_is_ambiguous(
    tensors: Tensors, save: Save, tmp_path: Path
) -> None:
    save(tensors, "a.safetensors")
    save(tensors, "b.safetensors")
    with pytest.raises(WeightsError, match=r"a\.safetensors, b\.safetensors"):
        resolve_checkpoint(str(tmp_path))


def test_a_path_that_does_not_exist_is_said_to_be_missing() -> None:
    with pytest.raises(WeightsError, match="does not exist"):
        resolve_checkpoint("./nowhere/model.safetensors")


def test_a_hub_model_that_cannot_be_reached_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(WeightsError, match=r"hf download facebook/sapiens2-pose-0\.4b"):
        resolve_checkpoint("facebook/sapiens2-pose-0.4b")


def test_an_encoder_has_one_digest_with_and_without_a_head(tensors: Tensors, save: Save) -> None:
    task = resolve_checkpoint(str(save(tensors)))
    alone = {
        name.removeprefix("backbone."): tensor
        for name, tensor in tensors.items()
        if name.startswith("backbone.")
    }
    pretrained = resolve_checkpoint(str(save(alone, "pretrain.safetensors")))
    assert pretrained.config.head is None
    assert pretrained.encoder_sha256 == task.encoder_sha256
    assert pretrained.weights_sha256 != task.weights_sha256
    alone["ln1.weight"] = alone["ln1.weight"] * 1.5
    changed = resolve_checkpoint(str(save(alone, "changed.safetensors")))
    assert changed.encoder_sha256 != task.encoder_sha256


def test_a_checkpoint_whose_file_changed_after_planning_is_refused(
    tensors: Tensors, save: Save
) -> None:
    checkpoint = resolve_checkpoint(str(save(tensors)))
    tensors["decode_head.conv_seg.bias"] = torch.ones(29)
    save(tensors)
    with pytest.raises(WeightsError, match="the job was planned with"):
        load_head(checkpoint, device=CPU, dtype=torch.float32)


def test_the_config_beside_the_weights_is_part_of_the_digest(
    tensors: Tensors, save: Save, tmp_path: Path
) -> None:
    save(tensors)
    plain = resolve_checkpoint(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"image_size": [128, 96]}))
    small = resolve_checkpoint(str(tmp_path))
    assert small.weights_sha256 == plain.weights_sha256
    assert small.digest != plain.digest


def test_a_cached_hub_model_is_found_offline_at_its_commit(
    tensors: Tensors, save: Save, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    repo = tmp_path / "cache" / "models--someone--tiny-seg"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    (repo / "snapshots" / commit).mkdir(parents=True)
    save(tensors).rename(repo / "snapshots" / commit / "model.safetensors")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    checkpoint = resolve_checkpoint("someone/tiny-seg")
    assert checkpoint.revision == commit
    assert checkpoint.licence == "Sapiens2 License"
    load_head(checkpoint, device=CPU, dtype=torch.float32)


def test_the_demo_has_the_same_weights_everywhere_and_one_encoder_for_all_tasks() -> None:
    pose = resolve_checkpoint("demo", head="pose")
    seg = resolve_checkpoint("demo", head="seg")
    alone = resolve_checkpoint("demo")
    assert pose.encoder_sha256 == seg.encoder_sha256 == alone.encoder_sha256
    assert len({pose.weights_sha256, seg.weights_sha256, alone.weights_sha256}) == 3
    assert pose.encoder_sha256.startswith("cfa714abec66")
    assert pose.demo


def test_every_demo_head_runs_on_the_demo_encoder() -> None:
    for kind in ("pose", "seg", "normal", "pointmap", "matting", "albedo"):
        checkpoint = resolve_checkpoint("demo", head=kind)
        head: Head = load_head(checkpoint, device=CPU, dtype=torch.float32)
        with torch.inference_mode():
            output = head(torch.randn(1, 48, 16, 12, generator=torch.Generator().manual_seed(0)))
        assert output.maps.isfinite().all()
        assert output.maps.shape[2:] == ((64, 48) if kind == "pose" else (256, 192))


def in_two_files(tensors: Tensors, save: Save, folder: Path) -> Path:
    """The tensors in two files with the index that names them, as large models are saved."""
    names = sorted(tensors)
    parts = {
        "model-00001-of-00002.safetensors": names[::2],
        "model-00002-of-00002.safetensors": names[1::2],
    }
    for file, held in parts.items():
        save({name: tensors[name] for name in held}, file)
    index = {"weight_map": {name: file for file, held in parts.items() for name in held}}
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps(index))
    return path


def test_a_model_in_several_files_is_read_by_its_index(
    tensors: Tensors, save: Save, tmp_path: Path
) -> None:
    index = in_two_files(tensors, save, tmp_path)
    several = resolve_checkpoint(str(tmp_path))
    assert several.path == index
    head = load_head(several, device=CPU, dtype=torch.float32)
    assert torch.equal(head.conv_seg.bias, tensors["decode_head.conv_seg.bias"])
    tensors["decode_head.conv_seg.bias"] = torch.ones(29)
    in_two_files(tensors, save, tmp_path)
    with pytest.raises(WeightsError, match="the job was planned with"):
        load_head(several, device=CPU, dtype=torch.float32)


def test_an_index_that_is_damaged_or_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text("{}")
    with pytest.raises(WeightsError, match="no index of safetensors"):
        resolve_checkpoint(str(tmp_path))
    index.write_text(json.dumps({"weight_map": {"a": "../a.safetensors"}}))
    with pytest.raises(WeightsError, match="names files outside its folder"):
        resolve_checkpoint(str(tmp_path))


def test_one_file_of_a_folder_with_several_can_be_named(
    tensors: Tensors, save: Save, tmp_path: Path
) -> None:
    (tmp_path / "pose").mkdir()
    save(tensors, "a.safetensors")
    wanted = save(tensors, "pose/b.safetensors")
    named = resolve_checkpoint(str(tmp_path), file="pose/b.safetensors")
    assert (named.path, named.file) == (wanted, "pose/b.safetensors")
    with pytest.raises(WeightsError, match=r"c\.safetensors does not exist"):
        resolve_checkpoint(str(tmp_path), file="c.safetensors")
    with pytest.raises(WeightsError, match="a file itself: leave out file"):
        resolve_checkpoint(str(wanted), file="b.safetensors")
