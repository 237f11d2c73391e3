"""A tiny model in the released layout, and ways to save it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from sapiens_batch.models.demo import demo_tensors
from sapiens_batch.models.encoder import Encoder
from sapiens_batch.models.heads import Head
from sapiens_batch.models.layers import rope_periods
from sapiens_batch.models.weights import resolve_checkpoint

torch.set_num_threads(1)

Tensors = dict[str, torch.Tensor]
Save = Callable[..., Path]


@pytest.fixture
def tensors() -> Tensors:
    """A tiny seg model in the released layout: demo weights under their file names."""
    config = resolve_checkpoint("demo", head="seg").config
    with torch.device("meta"):
        modules = {"backbone": Encoder(config.encoder), "decode_head": Head(config.head)}
    named: Tensors = {}
    for prefix, module in modules.items():
        shapes = {name: tuple(value.shape) for name, value in module.state_dict().items()}
        drawn = demo_tensors(shapes, None if prefix == "backbone" else "seg")
        named |= {f"{prefix}.{name}": value for name, value in drawn.items()}
    named["backbone.rope_embed.periods"] = rope_periods(16)
    return named


@pytest.fixture
def save(tmp_path: Path) -> Save:
    def write(tensors: Tensors, name: str = "model.safetensors") -> Path:
        path = tmp_path / name
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, path)
        return path

    return write
