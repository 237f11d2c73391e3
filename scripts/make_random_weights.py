"""Write a weights file of a released size with random numbers, to try a size without its weights.

`python scripts/make_random_weights.py pose 0.4b weights.safetensors` writes what the released file
would be in names and shapes. Its labels mean nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from sapiens_batch.models.configs import SAPIENS2_ENCODERS, released_head
from sapiens_batch.models.demo import demo_tensors
from sapiens_batch.models.encoder import Encoder
from sapiens_batch.models.heads import Head
from sapiens_batch.models.layers import rope_periods


def random_tensors(head: str, size: str) -> dict[str, Tensor]:
    """Tensors of a task model of Sapiens2 in the released layout, seeded."""
    encoder = SAPIENS2_ENCODERS[f"sapiens2-{size}"]
    with torch.device("meta"):
        modules: dict[str, nn.Module] = {
            "backbone": Encoder(encoder),
            "decode_head": Head(released_head(head, size)),
        }
    tensors: dict[str, Tensor] = {}
    for prefix, module in modules.items():
        shapes = {name: tuple(value.shape) for name, value in module.state_dict().items()}
        drawn = demo_tensors(shapes, None if prefix == "backbone" else head)
        tensors |= {f"{prefix}.{name}": value for name, value in drawn.items()}
    return tensors | {"backbone.rope_embed.periods": rope_periods(encoder.head_dim)}


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("head", choices=["pose", "seg", "normal", "pointmap", "matting", "albedo"])
    parser.add_argument("size", choices=["0.4b", "0.8b", "1b", "5b"])
    parser.add_argument("path", type=Path, help="the .safetensors file to write")
    arguments = parser.parse_args()
    save_file(random_tensors(arguments.head, arguments.size), arguments.path)


if __name__ == "__main__":
    main()
