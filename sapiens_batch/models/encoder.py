"""The Sapiens2 vision transformer: normalised pixels in, tokens out.

Written from the published layout; parameter names are those of the released files. Loading is left
to `weights`, heads to `heads`. An image's tokens do not depend on its neighbours in the batch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sapiens_batch.models.configs import EncoderConfig, RopeDtype
from sapiens_batch.models.layers import Attention, Block, RMSNorm, RotaryEmbedding, with_prefix

TOKENIZER_WINDOWS = 1024
"""Windows per pass of the tokenizer: bounds its memory, changes nothing."""


class Stage(NamedTuple):
    """Tokens on their way through the encoder.

    Attributes:
        layer: Number of layers passed, 0 to L.
        normalised: Whether the final norm is applied to them.
    """

    layer: int
    normalised: bool = True


@dataclass(frozen=True, slots=True)
class Encoding:
    """What an encoder says about B images.

    Attributes:
        tokens: (B, N, C) after the final norm; the last h * w of them are the patches.
        grid: (h, w) of the patch tokens.
        stages: Tokens at the stages that were asked for, each like `tokens`.
    """

    tokens: Tensor
    grid: tuple[int, int]
    stages: Mapping[Stage, Tensor] = field(default_factory=dict)

    @property
    def cls(self) -> Tensor:
        """(B, C) class tokens, of encoders that have them."""
        return self.tokens[:, 0]

    @property
    def patches(self) -> Tensor:
        """(B, h * w, C) patch tokens."""
        return self.tokens[:, -self.grid[0] * self.grid[1] :]

    @property
    def features(self) -> Tensor:
        """(B, C, h, w) feature map of the patches, channels last in memory."""
        return self.feature_map(self.tokens)

    def feature_map(self, tokens: Tensor) -> Tensor:
        """Patches of (B, N, C) tokens as (B, C, h, w), channels last in memory."""
        patches = tokens[:, -self.grid[0] * self.grid[1] :]
        return patches.reshape(len(tokens), *self.grid, -1).permute(0, 3, 1, 2)

    def select(self, start: int, stop: int) -> Encoding:
        """Images `[start, stop)`."""
        stages = {stage: tokens[start:stop] for stage, tokens in self.stages.items()}
        return Encoding(self.tokens[start:stop], self.grid, stages)


class PatchEmbedding(nn.Module):
    """Cuts the image into patches and projects each to a token.

    Args:
        patch: Side of a patch, px.
        dim: Channels C.
        padding: Zeros around the image, px.
    """

    def __init__(self, patch: int, dim: int, *, padding: int = 0) -> None:
        super().__init__()
        self.projection = nn.Conv2d(3, dim, patch, stride=patch, padding=padding)

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, 3, H, W) to (B, C, h, w)."""
        out: Tensor = self.projection(pixels)
        return out


class WindowTokenizer(nn.Module):
    """Summarises each window of patches in one token, as the 4K models do."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.window = config.tokenizer_window
        self.w_cls = nn.Parameter(torch.zeros(1, 1, config.hidden))
        self.local_pos_embed = nn.Parameter(torch.zeros(1, self.window**2 + 1, config.hidden))
        self.blocks = nn.ModuleList(
            Block(config, kv_heads=config.heads, plain=True) for _ in range(config.tokenizer_layers)
        )

    def forward(self, patches: Tensor) -> Tensor:
        """(B, C, h, w) to (B, C, h / window, w / window)."""
        B, C, h, w = patches.shape
        side = self.window
        rows, columns = h // side, w // side
        cells = patches.reshape(B, C, rows, side, columns, side)
        windows = cells.permute(0, 2, 4, 3, 5, 1).reshape(-1, side * side, C)
        summaries = [self._summarise(part) for part in torch.split(windows, TOKENIZER_WINDOWS)]
        return torch.cat(summaries).reshape(B, rows, columns, C).permute(0, 3, 1, 2)

    def _summarise(self, windows: Tensor) -> Tensor:
        cls = self.w_cls.expand(windows.shape[0], -1, -1)
        x = torch.cat([cls, windows], dim=1) + self.local_pos_embed
        for block in self.blocks:
            x = block(x, None)
        return x[:, 0]


class Encoder(nn.Module):
    """The transformer from pixels to tokens.

    Args:
        config: Its shape.
        rope_dtype: Precision of the rotary embedding, see `RotaryEmbedding`.
    """

    def __init__(self, config: EncoderConfig, *, rope_dtype: RopeDtype = "float32") -> None:
        super().__init__()
        self.config = config
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.hidden))
        self.storage_tokens = nn.Parameter(torch.zeros(1, config.registers, config.hidden))
        self.patch_embed = PatchEmbedding(config.patch, config.hidden)
        self.tokenizer = WindowTokenizer(config) if config.tokenizer_layers else None
        self.rope_embed = RotaryEmbedding(
            config.head_dim, dtype=rope_dtype, theta=config.rope_theta
        )
        self.blocks = nn.ModuleList(Block(config, kv_heads=kv) for kv in config.kv_heads)
        self.ln1 = RMSNorm(config.hidden, config.norm_eps)

    def fuse(self) -> None:
        """Make the same function faster; parameter names are no longer those of the files."""
        for module in self.modules():
            if isinstance(module, Attention):
                module.fuse()

    def forward(self, pixels: Tensor, stages: Collection[Stage] = ()) -> Encoding:
        """Encode normalised images.

        Args:
            pixels: (B, 3, H, W) RGB, normalised, in the parameters' dtype; H and W are
                multiples of the configuration's `cell`.
            stages: Where the tokens are wanted besides the end.
        """
        patches = self.patch_embed(pixels)
        if self.tokenizer is not None:
            patches = self.tokenizer(patches)
        B, _, h, w = patches.shape
        prefix = [token.expand(B, -1, -1) for token in (self.cls_token, self.storage_tokens)]
        x = torch.cat([*prefix, patches.flatten(2).transpose(1, 2)], dim=1)
        rotation = with_prefix(self.rope_embed((h, w)), 1 + self.config.registers)
        kept: dict[Stage, Tensor] = {}
        keep_stages(kept, stages, 0, x, self.ln1)
        for passed, block in enumerate(self.blocks, start=1):
            x = block(x, rotation)
            keep_stages(kept, stages, passed, x, self.ln1)
        return Encoding(self.ln1(x), (h, w), kept)


def keep_stages(
    kept: dict[Stage, Tensor], stages: Collection[Stage], passed: int, x: Tensor, norm: nn.Module
) -> None:
    """Remember the tokens x after `passed` layers if a stage asks for them."""
    for stage in stages:
        if stage.layer == passed:
            kept[stage] = norm(x) if stage.normalised else x
