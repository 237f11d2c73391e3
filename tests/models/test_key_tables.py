"""Names and shapes of every released size against the published layout, written out as rules."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sapiens_batch.models.configs import SAPIENS2_ENCODERS, HeadKind, released_head
from sapiens_batch.models.configs_v1 import SAPIENS1_ENCODERS, released_v1_head
from sapiens_batch.models.encoder import Encoder
from sapiens_batch.models.encoder_v1 import EncoderV1
from sapiens_batch.models.heads import Head

Table = dict[str, tuple[int, ...]]

# hidden width, layers, query heads, key heads in the middle, head width, tokenizer layers
SAPIENS2 = {
    "sapiens2-0.1b": (768, 12, 12, 12, 64, 0),
    "sapiens2-0.4b": (1024, 24, 16, 8, 64, 0),
    "sapiens2-0.8b": (1280, 32, 16, 8, 80, 0),
    "sapiens2-1b": (1536, 40, 24, 12, 64, 0),
    "sapiens2-1b-4k": (1536, 40, 24, 12, 64, 4),
    "sapiens2-5b": (2432, 56, 32, 16, 76, 0),
}
SAPIENS1 = {
    "sapiens-0.3b": (1024, 24),
    "sapiens-0.6b": (1280, 32),
    "sapiens-1b": (1536, 40),
    "sapiens-2b": (1920, 48),
}


def shapes(module: nn.Module) -> Table:
    return {name: tuple(value.shape) for name, value in module.state_dict().items()}


def linear(name: str, before: int, after: int) -> Table:
    return {f"{name}.weight": (after, before), f"{name}.bias": (after,)}


def conv(name: str, before: int, after: int, kernel: int) -> Table:
    return {f"{name}.weight": (after, before, kernel, kernel), f"{name}.bias": (after,)}


def gated(prefix: str, dim: int) -> Table:
    return linear(f"{prefix}.ffn.w12", dim, 8 * dim) | linear(f"{prefix}.ffn.w3", 4 * dim, dim)


def sapiens2_block(prefix: str, dim: int, kv: int, head_dim: int) -> Table:
    table: Table = {f"{prefix}.{name}.weight": (dim,) for name in ("ln1", "ln2", "attn.gamma")}
    table |= {f"{prefix}.attn.{name}.weight": (head_dim,) for name in ("q_norm", "k_norm")}
    table |= linear(f"{prefix}.attn.wq", dim, dim) | linear(f"{prefix}.attn.proj", dim, dim)
    table |= linear(f"{prefix}.attn.wk", dim, kv * head_dim) | linear(
        f"{prefix}.attn.wv", dim, kv * head_dim
    )
    return table | gated(prefix, dim)


def tokenizer_block(prefix: str, dim: int) -> Table:
    table: Table = {f"{prefix}.{name}.weight": (dim,) for name in ("ln1", "ln2")}
    for name in ("wq", "wk", "wv", "proj"):
        table |= linear(f"{prefix}.attn.{name}", dim, dim)
    return table | gated(prefix, dim)


@pytest.mark.parametrize("name", sorted(SAPIENS2))
def test_a_second_generation_encoder_has_the_names_and_shapes_of_its_file(name: str) -> None:
    dim, layers, heads, few, head_dim, tokenizer = SAPIENS2[name]
    table: Table = {"cls_token": (1, 1, dim), "storage_tokens": (1, 8, dim), "ln1.weight": (dim,)}
    table |= conv("patch_embed.projection", 3, dim, 16) | {"rope_embed.periods": (head_dim // 4,)}
    for index in range(layers):
        kv = few if 8 <= index < layers - 8 else heads
        table |= sapiens2_block(f"blocks.{index}", dim, kv, head_dim)
    if tokenizer:
        table |= {"tokenizer.local_pos_embed": (1, 17, dim), "tokenizer.w_cls": (1, 1, dim)}
    for index in range(tokenizer):
        table |= tokenizer_block(f"tokenizer.blocks.{index}", dim)
    with torch.device("meta"):
        assert shapes(Encoder(SAPIENS2_ENCODERS[name])) == table


@pytest.mark.parametrize("name", sorted(SAPIENS1))
def test_a_first_generation_encoder_has_the_names_and_shapes_of_its_file(name: str) -> None:
    dim, layers = SAPIENS1[name]
    table: Table = {"pos_embed": (1, 3072, dim), "ln1.weight": (dim,), "ln1.bias": (dim,)}
    table |= conv("patch_embed.projection", 3, dim, 16)
    for index in range(layers):
        prefix = f"layers.{index}"
        for norm in ("ln1", "ln2"):
            table |= {f"{prefix}.{norm}.{part}": (dim,) for part in ("weight", "bias")}
        table |= linear(f"{prefix}.attn.qkv", dim, 3 * dim) | linear(
            f"{prefix}.attn.proj", dim, dim
        )
        table |= linear(f"{prefix}.ffn.layers.0.0", dim, 4 * dim)
        table |= linear(f"{prefix}.ffn.layers.1", 4 * dim, dim)
    with torch.device("meta"):
        assert shapes(EncoderV1(SAPIENS1_ENCODERS[name])) == table


def deconv_head(
    dim: int, deconvs: tuple[int, ...], convs: tuple[int, ...], last: str, out: int
) -> Table:
    table: Table = {}
    before = dim
    for index, after in enumerate(deconvs):
        table[f"deconv_layers.{3 * index}.weight"] = (before, after, 4, 4)
        before = after
    for index, after in enumerate(convs):
        table |= conv(f"conv_layers.{3 * index}", before, after, 1)
        before = after
    return table | conv(last, before, out, 1)


def shuffle_head(
    dim: int, ups: tuple[int, ...], convs: tuple[int, ...], last: str, out: int
) -> Table:
    table = conv("input_conv.0", dim, dim, 3)
    before = dim
    for index, after in enumerate(ups):
        table |= conv(f"upsample_blocks.{index}.0", before, 4 * after, 3)
        before = after
    for index, after in enumerate(convs):
        table |= conv(f"conv_layers.{3 * index}", before, after, 3)
        before = after
    return table | conv(last, before, out, 1)


WIDTHS = {"0.4b": 1024, "0.8b": 1280, "1b": 1536, "5b": 2432}


@pytest.mark.parametrize("size", sorted(WIDTHS))
def test_second_generation_heads_have_the_names_and_shapes_of_their_files(size: str) -> None:
    dim = WIDTHS[size]
    large = size == "5b"
    deconvs, convs = ((1024, 768), (512, 512, 256))
    if size == "1b":
        deconvs, convs = ((1536, 1024), (768, 512, 256))
    narrow = (128, 64, 32) if large else (64, 32, 16)
    ups = (1536, 768, 512, 256) if large else (768, 512, 256, 128)
    points = (1536, 768, 768, 768) if large else (1536, 768, 512, 256)
    tables: dict[HeadKind, Table] = {
        "pose": deconv_head(dim, deconvs, convs, "conv_pose", 308),
        "seg": deconv_head(dim, (512, 256, 128, 64), (64, 64), "conv_seg", 29),
        "normal": shuffle_head(dim, ups, narrow, "conv_normal", 3),
        "pointmap": shuffle_head(dim, points, narrow, "conv_pointmap", 3),
        "albedo": shuffle_head(dim, ups, (64, 32, 16), "conv_albedo", 3),
    }
    for index, (before, after) in enumerate([(dim, 1536), (1536, 512), (512, 128)]):
        tables["pointmap"] |= conv(f"scale_conv_layers.{3 * index}", before, after, 1)
    for index, (before, after) in enumerate([(6144, 512), (512, 128), (128, 1)]):
        tables["pointmap"] |= linear(f"scale_final_layer.{2 * index + 1}", before, after)
    tables["albedo"] |= {"input_conv.1.norm.weight": (dim,)}
    for index, width in enumerate(ups):
        tables["albedo"] |= {f"upsample_blocks.{index}.2.norm.weight": (width,)}
    for index, width in enumerate((64, 32, 16)):
        tables["albedo"] |= {f"conv_layers.{3 * index + 1}.norm.weight": (width,)}
    if size == "1b":
        tables["matting"] = shuffle_head(dim, ups, (64, 32, 16), "conv_matting", 4)
    for kind, table in tables.items():
        with torch.device("meta"):
            assert shapes(Head(released_head(kind, size))) == table


def test_first_generation_heads_have_the_names_and_shapes_of_their_files() -> None:
    seg = (768, 768, 768)
    tables: list[tuple[HeadKind, int, Table]] = [
        ("pose", 17, deconv_head(1024, (768, 768), (768, 768), "final_layer", 17)),
        ("pose", 308, deconv_head(1024, (768, 768), (768, 768), "final_layer", 308)),
        ("seg", 28, deconv_head(1024, seg, seg, "conv_seg", 28)),
        ("normal", 3, deconv_head(1024, seg, seg, "conv_seg", 3)),
        ("depth", 1, deconv_head(1024, (384,) * 4, (384, 384), "conv_seg", 1)),
    ]
    for kind, out, table in tables:
        with torch.device("meta"):
            head = Head(released_v1_head(kind, "0.3b", out_channels=out))
        assert shapes(head) == table
