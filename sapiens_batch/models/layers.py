"""The parts of which encoders and heads are made: norms, rotary embedding, attention, gating.

Parameter names are those of the released files, so that a checkpoint loads by name alone. Nothing
here knows about tasks or files. A token's values never depend on other images of the batch.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (the name that torch's own documentation uses)

from sapiens_batch.models.configs import RopeDtype

NORM_EPS = 1e-6
ROPE_BASE = 100.0
Rotation = tuple[Tensor, Tensor]
"""Sine and cosine, each (h * w, D)."""


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last axis with a learned weight; statistics in float32."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (..., dim)."""
        return F.rms_norm(x, x.shape[-1:], self.weight, NORM_EPS)


class ChannelScale(nn.Module):
    """A learned factor per channel (layer scale)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((dim,), 1e-4))

    def forward(self, x: Tensor) -> Tensor:
        """Scale (..., dim)."""
        return x * self.weight


def rope_periods(head_dim: int) -> Tensor:
    """Periods of the D / 4 frequencies of one axis, float32."""
    # on the CPU also where modules are made without memory: there torch loads its compiler for this
    steps = torch.arange(head_dim // 4, dtype=torch.float32, device="cpu")
    exponents = 2.0 * steps / (head_dim // 2)
    return ROPE_BASE**exponents


class RotaryEmbedding(nn.Module):
    """Rotary position embedding over rows and columns of the token grid.

    Args:
        head_dim: Channels D of a head.
        dtype: Precision of positions, angles and rotation. The original code computes all of it in
            bfloat16 even for float32 weights; the transformers port in float32.
    """

    periods: Tensor

    def __init__(self, head_dim: int, *, dtype: RopeDtype) -> None:
        super().__init__()
        self.dtype = torch.bfloat16 if dtype == "bfloat16" else torch.float32
        self.register_buffer("periods", rope_periods(head_dim))

    def forward(self, grid: tuple[int, int]) -> Rotation:
        """Sine and cosine for the (h, w) grid, rows slow, each (h * w, D)."""
        axes = [self._axis(size) for size in grid]  # (h, D/4), (w, D/4)
        rows = axes[0][:, None].expand(-1, grid[1], -1)
        columns = axes[1][None].expand(grid[0], -1, -1)
        angles = torch.cat([rows, columns], dim=-1).flatten(0, 1).repeat(1, 2)  # (h*w, D)
        return angles.sin(), angles.cos()

    def _axis(self, size: int) -> Tensor:
        index = torch.arange(size, device=self.periods.device, dtype=self.dtype)
        position = 2.0 * ((index + 0.5) / size) - 1.0
        return 2.0 * math.pi * position[:, None] / self.periods.to(self.dtype)


def with_prefix(rotation: Rotation, prefix: int) -> Rotation:
    """Tables (prefix + h * w, 1, D) that leave the first tokens as they are."""
    sin, cos = (F.pad(table, (0, 0, prefix, 0)) for table in rotation)
    cos[:prefix] = 1
    return sin[:, None], cos[:, None]


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotate (B, N, heads, D) by tables (N, 1, D).

    In bfloat16 all tokens pass through bfloat16, rotated or not, as in the original code.
    """
    sin, cos = rotation
    rounded = x.to(sin.dtype) if sin.dtype == torch.bfloat16 else x
    first, second = rounded.chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    return (rounded * cos.to(rounded.dtype) + turned * sin.to(rounded.dtype)).to(x.dtype)


class Attention(nn.Module):
    """Multi-head attention with fewer key heads than query heads where asked.

    Args:
        dim: Channels C.
        heads: Query heads.
        kv_heads: Key and value heads, a divisor of `heads`.
        plain: Whether to leave out the norm of queries and keys and the layer scale, as the window
            tokenizer does.
    """

    def __init__(self, dim: int, *, heads: int, kv_heads: int, plain: bool = False) -> None:
        super().__init__()
        self.head_dim = dim // heads
        kv_dim = kv_heads * self.head_dim
        self.widths = (dim, kv_dim, kv_dim)
        self.wq = nn.Linear(dim, dim)
        self.wk = nn.Linear(dim, kv_dim)
        self.wv = nn.Linear(dim, kv_dim)
        self.fused: nn.Linear | None = None
        self.q_norm = nn.Identity() if plain else RMSNorm(self.head_dim)
        self.k_norm = nn.Identity() if plain else RMSNorm(self.head_dim)
        self.proj = nn.Linear(dim, dim)
        self.gamma = nn.Identity() if plain else ChannelScale(dim)

    def fuse(self) -> None:
        """Replace the three projections of the files by one, which is one larger product."""
        parts = [self.wq, self.wk, self.wv]
        with torch.device("meta"):
            fused = nn.Linear(self.widths[0], sum(self.widths))
        weight = torch.cat([part.weight for part in parts])
        bias = torch.cat([part.bias for part in parts])
        fused.load_state_dict({"weight": weight, "bias": bias}, assign=True)
        self.fused = fused
        del self.wq, self.wk, self.wv

    def forward(self, x: Tensor, rotation: Rotation | None) -> Tensor:
        """Attend among the N tokens of (B, N, C)."""
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)) for part in self._project(x))
        q, k = self.q_norm(q), self.k_norm(k)  # (B, N, heads, D), (B, N, kv_heads, D)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        attended = F.scaled_dot_product_attention(
            q.transpose(1, 2),
            k.transpose(1, 2),
            v.transpose(1, 2),
            enable_gqa=q.shape[2] != k.shape[2],
        )
        out: Tensor = self.gamma(self.proj(attended.transpose(1, 2).flatten(2)))
        return out

    def _project(self, x: Tensor) -> tuple[Tensor, ...]:
        if self.fused is not None:
            return tuple(self.fused(x).split(self.widths, dim=-1))
        return self.wq(x), self.wk(x), self.wv(x)


class GatedFeedForward(nn.Module):
    """SwiGLU: the first half of `w12` gates the second."""

    def __init__(self, dim: int, *, hidden: int) -> None:
        super().__init__()
        self.w12 = nn.Linear(dim, 2 * hidden)
        self.w3 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each token of (B, N, C)."""
        gate, value = self.w12(x).chunk(2, dim=-1)
        out: Tensor = self.w3(F.silu(gate).mul_(value))
        return out


class Block(nn.Module):
    """One transformer layer: attention, then the feed-forward layer, each after a norm."""

    def __init__(
        self, dim: int, *, heads: int, kv_heads: int, ffn_hidden: int, plain: bool = False
    ) -> None:
        super().__init__()
        self.ln1 = RMSNorm(dim)
        self.attn = Attention(dim, heads=heads, kv_heads=kv_heads, plain=plain)
        self.ln2 = RMSNorm(dim)
        self.ffn = GatedFeedForward(dim, hidden=ffn_hidden)

    def forward(self, x: Tensor, rotation: Rotation | None) -> Tensor:
        """Transform (B, N, C)."""
        x = x + self.attn(self.ln1(x), rotation)
        out: Tensor = x + self.ffn(self.ln2(x))
        return out
