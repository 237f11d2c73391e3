"""Task heads: an encoder's feature map in, raw maps out.

Two layouts cover every released task: transposed convolutions (pose, seg, all of Sapiens v1) and
convolutions with pixel shuffles (normal, pointmap, matting, albedo). Parameter names are those of
the released files. What the raw maps mean is left to the tasks. Norms use the statistics of the
image alone, also in evaluation, so results do not depend on neighbours in the batch. Maps are
channels last in memory up to the predictor, which convolutions are fastest with (measured on a CPU:
1.4 to 2 times).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (the name that torch's own documentation uses)

from sapiens_batch.models.configs import Activation, HeadConfig
from sapiens_batch.models.layers import ACTIVATE, RMSNorm

INSTANCE_NORM_EPS = 1e-5


@dataclass(frozen=True, slots=True)
class HeadOutput:
    """Raw output of a head for B images.

    Attributes:
        maps: (B, K, H, W): heatmaps, logits, or map channels.
        scale: (B, 1) focal scale of pointmaps, None for other heads.
    """

    maps: Tensor
    scale: Tensor | None = None


class ChannelNorm(nn.Module):
    """Root-mean-square norm over the channels of each pixel, as the albedo head has it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = RMSNorm(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (B, C, H, W)."""
        out: Tensor = self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return out


class ImageNorm(nn.Module):
    """Instance norm: each channel of each image to mean 0 and variance 1, statistics in float32.

    A group norm of one channel a group is the same function, and about three times faster.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (B, C, H, W)."""
        # widened, because torch keeps mean and deviation in the precision of its input
        return F.group_norm(x.float(), x.shape[1], eps=INSTANCE_NORM_EPS).to(x.dtype)


class Activate(nn.Module):
    """An activation by its name."""

    def __init__(self, name: Activation) -> None:
        super().__init__()
        self.activate = ACTIVATE[name]

    def forward(self, x: Tensor) -> Tensor:
        """Activate each value."""
        return self.activate(x)


def _norm(config: HeadConfig, channels: int) -> nn.Module:
    return ChannelNorm(channels) if config.kind == "albedo" else ImageNorm()


def _convs(config: HeadConfig, channels: tuple[int, ...], kernel: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(channels):
        layers += [nn.Conv2d(before, after, kernel, padding=kernel // 2), _norm(config, after)]
        layers += [nn.SiLU(inplace=True)]
    return nn.Sequential(*layers)


def _deconvs(config: HeadConfig) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise((config.in_channels, *config.upsample_channels)):
        layers += [nn.ConvTranspose2d(before, after, 4, stride=2, padding=1, bias=False)]
        layers += [_norm(config, after), nn.SiLU(inplace=True)]
    return nn.Sequential(*layers)


def _shuffle_block(config: HeadConfig, before: int, after: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, 4 * after, 3, padding=1),
        nn.PixelShuffle(2),
        _norm(config, after),
        nn.SiLU(inplace=True),
    )


class Head(nn.Module):
    """A head of either layout.

    Args:
        config: Its shape.
    """

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        stages = (config.in_channels, *config.upsample_channels)
        if config.upsample == "deconv":
            self.deconv_layers = _deconvs(config)
        else:
            same = (config.in_channels, config.in_channels)
            self.input_conv = _convs(config, same, 3)
            self.upsample_blocks = nn.ModuleList(
                _shuffle_block(config, before, after) for before, after in pairwise(stages)
            )
        widths = (stages[-1], *config.conv_channels)
        self.conv_layers = _convs(config, widths, config.conv_kernel)
        self.add_module(config.predictor, nn.Conv2d(widths[-1], config.out_channels, 1))
        if config.scale_hidden:
            self.scale_conv_layers = _scale_convs(config)
            self.scale_final_layer = _scale_regressor(config)

    def forward(self, features: Tensor) -> HeadOutput:
        """Predict maps from the (B, C, h, w) feature map of the encoder."""
        x = features
        if self.config.upsample == "deconv":
            x = self.deconv_layers(x)
        else:
            x = self.input_conv(x)
            for block in self.upsample_blocks:
                x = block(x)
        x = self._predict(self.conv_layers(x))
        if self.config.kind == "matting":
            x = x.sigmoid()
        scale = None
        if self.config.scale_hidden:
            scale = self.scale_final_layer(self.scale_conv_layers(features))
        return HeadOutput(x, scale)

    def _predict(self, x: Tensor) -> Tensor:
        """The 1 x 1 convolution as a product, which leaves (B, K, H, W) channels first."""
        layer = self.get_submodule(self.config.predictor)
        assert isinstance(layer, nn.Conv2d), "made so in the constructor"
        assert layer.bias is not None, "made so in the constructor"
        weight = layer.weight.flatten(1).expand(len(x), -1, -1)  # (B, K, C)
        flat = torch.baddbmm(layer.bias[:, None], weight, x.flatten(2))
        return flat.reshape(len(x), -1, *x.shape[2:])


def _scale_convs(config: HeadConfig) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise((config.in_channels, *config.scale_channels)):
        layers += [nn.Conv2d(before, after, 1, stride=2), ImageNorm(), nn.SiLU(inplace=True)]
    return nn.Sequential(*layers)


def _scale_regressor(config: HeadConfig) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise((config.scale_inputs, *config.scale_hidden)):
        layers += [nn.Linear(before, after), Activate(config.scale_activation)]
    return nn.Sequential(*layers, nn.Linear(config.scale_hidden[-1], 1))
