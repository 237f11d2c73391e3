"""The Sapiens v1 vision transformer: normalised pixels in, tokens out.

A plain transformer with a stored position table; parameter names are those of the released files.
Loading is left to `weights`, heads to `heads`. An image's tokens do not depend on its neighbours in
the batch.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (the name that torch's own documentation uses)

from sapiens_batch.models.configs import EncoderV1Config
from sapiens_batch.models.encoder import Encoding, PatchEmbedding, Stage, keep_stages

NORM_EPS = 1e-6
Grid = tuple[int, int]


def resize_positions(table: Tensor, grid: Grid, target: Grid) -> Tensor:
    """Bring the patches' rows of a position table to another grid, bicubic.

    Args:
        table: (1, P + h * w, C); the first P rows belong to no patch and stay.
        grid: (h, w) of the table.
        target: (h', w').

    Returns:
        (1, P + h' * w', C) in the dtype of the table.
    """
    if grid == target:
        return table
    start = table.shape[1] - grid[0] * grid[1]
    image = table[:, start:].float().unflatten(1, grid).permute(0, 3, 1, 2)
    resized = F.interpolate(image, size=target, mode="bicubic", align_corners=False)
    return torch.cat([table[:, :start], resized.flatten(2).transpose(1, 2).to(table.dtype)], dim=1)


class AttentionV1(nn.Module):
    """Multi-head attention with one projection for queries, keys and values."""

    def __init__(self, dim: int, *, heads: int) -> None:
        super().__init__()
        self.head_dim = dim // heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Attend among the N tokens of (B, N, C)."""
        parts = self.qkv(x).unflatten(-1, (3, -1, self.head_dim))  # (B, N, 3, heads, D)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.proj(attended.transpose(1, 2).flatten(2))
        return out


class FeedForwardV1(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, dim: int, *, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Sequential(nn.Linear(dim, hidden), nn.GELU()), nn.Linear(hidden, dim)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Transform each token of (B, N, C)."""
        out: Tensor = self.layers(x)
        return out


class BlockV1(nn.Module):
    """One transformer layer: attention, then the feed-forward layer, each after a norm."""

    def __init__(self, dim: int, *, heads: int, ffn_hidden: int) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(dim, NORM_EPS)
        self.attn = AttentionV1(dim, heads=heads)
        self.ln2 = nn.LayerNorm(dim, NORM_EPS)
        self.ffn = FeedForwardV1(dim, hidden=ffn_hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Transform (B, N, C)."""
        x = x + self.attn(self.ln1(x))
        out: Tensor = x + self.ffn(self.ln2(x))
        return out


class EncoderV1(nn.Module):
    """The transformer from pixels to tokens.

    Args:
        config: Its shape.
        patch_padding: Zeros around the image before patches are cut, px. Weights do not say with
            how many they were trained.
    """

    def __init__(self, config: EncoderV1Config, *, patch_padding: int = 0) -> None:
        super().__init__()
        self.config = config
        rows, columns = config.position_grid
        prefix = int(config.has_class_token)
        if config.has_class_token:
            self.cls_token = nn.Parameter(torch.zeros(1, 1, config.hidden))
        self.pos_embed = nn.Parameter(torch.zeros(1, prefix + rows * columns, config.hidden))
        self.patch_embed = PatchEmbedding(config.patch, config.hidden, padding=patch_padding)
        self.layers = nn.ModuleList(
            BlockV1(config.hidden, heads=config.heads, ffn_hidden=config.ffn_hidden)
            for _ in range(config.layers)
        )
        self.ln1 = nn.LayerNorm(config.hidden, NORM_EPS)

    def forward(self, pixels: Tensor, stages: Collection[Stage] = ()) -> Encoding:
        """Encode normalised images.

        Args:
            pixels: (B, 3, H, W) RGB, ImageNet-normalised, in the parameters' dtype; H and W are
                multiples of the patch. For another grid than that of the position table the table
                is resized.
            stages: Where the tokens are wanted besides the end.
        """
        patches = self.patch_embed(pixels)
        B, _, h, w = patches.shape
        x = patches.flatten(2).transpose(1, 2)
        if self.config.has_class_token:
            x = torch.cat([self.cls_token.expand(B, -1, -1), x], dim=1)
        x = x + resize_positions(self.pos_embed, self.config.position_grid, (h, w))
        kept: dict[Stage, Tensor] = {}
        keep_stages(kept, stages, 0, x, self.ln1)
        for passed, layer in enumerate(self.layers, start=1):
            x = layer(x)
            keep_stages(kept, stages, passed, x, self.ln1)
        return Encoding(self.ln1(x), (h, w), kept)
