"""Which Sapiens v1 encoder a file holds, read from its tensor names and shapes.

A file of this generation does not say how many heads its attention has: that is known for the
released widths, and otherwise read from the `config.json` beside it. Heads of tasks, and the size
of the input, are left to `shapes`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from sapiens_batch.errors import WeightsError
from sapiens_batch.models.configs import EncoderV1Config
from sapiens_batch.models.configs_v1 import SAPIENS1_ENCODERS, TASK_GRID
from sapiens_batch.models.described import Described

Shapes = Mapping[str, tuple[int, ...]]
_POSITIONS = "pos_embed"
_PATCH_WEIGHT = "patch_embed.projection.weight"
_QKV = "layers.{}.attn.qkv.weight"


def is_v1(shapes: Shapes) -> bool:
    """Whether these are the tensors of a Sapiens v1 encoder, as far as their names go."""
    return _POSITIONS in shapes and len(shapes.get(_PATCH_WEIGHT, ())) == 4


def encoder_v1_config(
    shapes: Shapes,
    described: Described,
    where: str,
) -> EncoderV1Config:
    """The configuration of a Sapiens v1 encoder.

    Args:
        shapes: Shape of every encoder tensor, without prefix.
        described: What is said beside the file.
        where: Names the file in messages.

    Raises:
        WeightsError: When the number of heads or the grid of the position table is not known.
    """
    hidden, patch = shapes[_PATCH_WEIGHT][0], shapes[_PATCH_WEIGHT][2]
    has_class_token = "cls_token" in shapes
    rows = shapes[_POSITIONS][1] - int(has_class_token)
    image_size = described.image_size
    stated = image_size and (image_size[0] // patch, image_size[1] // patch)
    grid = _grid(rows, stated, where)
    for known in SAPIENS1_ENCODERS.values():
        if known.hidden == hidden:
            return replace(known, position_grid=grid, has_class_token=has_class_token)
    layers = 0
    while _QKV.format(layers) in shapes:
        layers += 1
    return EncoderV1Config(
        name="custom",
        hidden=hidden,
        layers=layers,
        heads=_heads(hidden, described, where),
        ffn_hidden=shapes.get("layers.0.ffn.layers.0.0.weight", (4 * hidden,))[0],
        position_grid=grid,
        has_class_token=has_class_token,
        patch=patch,
    )


def _grid(rows: int, stated: tuple[int, int] | None, where: str) -> tuple[int, int]:
    """(rows, columns) of a position table: the stated grid, the released one, or a square."""
    for grid in (stated, TASK_GRID):
        if grid is not None and grid[0] * grid[1] == rows:
            return grid
    side = math.isqrt(rows)
    if side * side != rows:
        raise WeightsError(
            f"the position table of {where} has {rows} patches, which are neither 64 x 48 nor a "
            "square: state image_size in a config.json beside the file"
        )
    return side, side


def _heads(hidden: int, described: Described, where: str) -> int:
    heads = described.heads
    if heads is None or hidden % heads:
        raise WeightsError(
            f"{where} has width {hidden}, which is no released size, and the file does not say how "
            "many attention heads it has: state num_attention_heads in a config.json beside it"
        )
    return heads
