"""What shapes the models have: encoders, heads, and the released sizes of Sapiens2.

Plain values without torch. The released sizes of Sapiens v1 are in `configs_v1`. Which
configuration a file has is decided in `shapes`; the modules that are built from a configuration
live in `encoder`, `encoder_v1` and `heads`. Sizes are (height, width).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from sapiens_batch.errors import WeightsError

HeadKind = Literal["pose", "seg", "normal", "pointmap", "matting", "albedo", "depth"]
RopeDtype = Literal["float32", "bfloat16"]
Activation = Literal["silu", "gelu", "gelu_tanh", "relu"]
ACTIVATIONS: Final[tuple[Activation, ...]] = ("silu", "gelu", "gelu_tanh", "relu")
Triple = tuple[float, float, float]

NORM_EPS: Final = 1e-6
ROPE_THETA: Final = 100.0
IMAGENET_MEAN: Final[Triple] = (0.485, 0.456, 0.406)
IMAGENET_STD: Final[Triple] = (0.229, 0.224, 0.225)
"""Of the 0 to 1 range, as all released models were trained."""

SAPIENS2_HEADS: Final[tuple[HeadKind, ...]] = (
    "pose",
    "seg",
    "normal",
    "pointmap",
    "matting",
    "albedo",
)
FULL_ATTENTION_LAYERS: Final = 8
"""So many layers at either end have as many key heads as query heads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """Shape of a Sapiens2 vision transformer.

    Attributes:
        name: Architecture name, `custom` where it is none of the released ones.
        hidden: Channels C of a token.
        heads: Query heads; `heads * head_dim == hidden`.
        head_dim: Channels D of a head, a multiple of 4 for the two-axis rotary embedding.
        kv_heads: Key and value heads of each layer; its length is the number of layers.
        ffn_hidden: Width of each half of the gated feed-forward layer.
        patch: Side of a patch in pixels.
        registers: Storage tokens between the class token and the patches.
        tokenizer_layers: Layers of the window tokenizer of the 4K models; 0 where there is none.
        tokenizer_window: Side of a tokenizer window in patches.
        attention_biases: Whether projections of queries, keys, values and outputs have biases.
        ffn_bias: Whether the feed-forward layers have biases.
        gated: Whether the feed-forward layers have a gate.
        qk_norm: Whether queries and keys are normalised.
        activation: Of the gate, or of the hidden layer where there is none.
        rope_theta: Base of the rotary embedding's periods.
        norm_eps: Added to the mean square in norms.
    """

    name: str
    hidden: int
    heads: int
    head_dim: int
    kv_heads: tuple[int, ...]
    ffn_hidden: int
    patch: int = 16
    registers: int = 8
    tokenizer_layers: int = 0
    tokenizer_window: int = 4
    attention_biases: tuple[bool, bool, bool, bool] = (True, True, True, True)
    ffn_bias: bool = True
    gated: bool = True
    qk_norm: bool = True
    activation: Activation = "silu"
    rope_theta: float = ROPE_THETA
    norm_eps: float = NORM_EPS

    @property
    def layers(self) -> int:
        """Number of transformer blocks."""
        return len(self.kv_heads)

    @property
    def has_class_token(self) -> bool:
        """Whether the first token stands for the whole image."""
        return True

    @property
    def cell(self) -> int:
        """Side in pixels of what one output token covers; image sides are multiples of it."""
        return self.patch * (self.tokenizer_window if self.tokenizer_layers else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderV1Config:
    """Shape of a Sapiens v1 vision transformer.

    Attributes:
        name: Architecture name, `custom` where it is none of the released ones.
        hidden: Channels C of a token.
        layers: Number of transformer blocks.
        heads: Attention heads.
        ffn_hidden: Width of the feed-forward layer.
        position_grid: (rows, columns) of patches that the stored position table is for.
        has_class_token: Whether the first token stands for the whole image; pretrained encoders
            have it, those of task models do not.
        patch: Side of a patch in pixels.
    """

    name: str
    hidden: int
    layers: int
    heads: int
    ffn_hidden: int
    position_grid: tuple[int, int]
    has_class_token: bool
    patch: int = 16

    @property
    def cell(self) -> int:
        """Side in pixels of what one output token covers; image sides are multiples of it."""
        return self.patch


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadConfig:
    """Shape of a task head.

    Attributes:
        kind: The task that the head was trained for.
        in_channels: Channels of the encoder's feature map.
        out_channels: Keypoints, classes or map channels.
        upsample: Transposed convolutions, or convolutions followed by a pixel shuffle.
        upsample_channels: Output channels of each doubling stage.
        conv_channels: Output channels of the convolutions after the last doubling.
        conv_kernel: Kernel side of those convolutions.
        scale_channels: Output channels of the stride-2 convolutions of the scale branch.
        scale_hidden: Hidden widths of the scale branch's linear layers; empty without a branch.
        scale_inputs: Flattened features that enter the linear layers; fixes the image size.
        scale_activation: Between those linear layers; that of the encoder, in the port.
        predictor: Name of the last layer in the files.
    """

    kind: HeadKind
    in_channels: int
    out_channels: int
    upsample: Literal["deconv", "pixel_shuffle"]
    upsample_channels: tuple[int, ...]
    conv_channels: tuple[int, ...]
    conv_kernel: int
    scale_channels: tuple[int, ...] = ()
    scale_hidden: tuple[int, ...] = ()
    scale_inputs: int = 0
    scale_activation: Activation = "silu"
    predictor: str = ""

    def __post_init__(self) -> None:
        if not self.predictor:
            object.__setattr__(self, "predictor", f"conv_{self.kind}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """An encoder, the head on it, and the input that both were trained for.

    Attributes:
        encoder: The encoder's shape.
        head: The head's shape, None for weights that are an encoder alone.
        image_size: (height, width) of the model input in pixels.
        pixel_mean: Subtracted from pixels in the 0 to 1 range, by channel R, G, B.
        pixel_std: What they are divided by after that.
        pads: Whether images are letterboxed rather than stretched; None where nothing says so.
        names: Names of the head's channels, where something beside the weights says them.
        flip_pairs: Channels of the left and the right of a pair, likewise.
    """

    encoder: EncoderConfig | EncoderV1Config
    head: HeadConfig | None
    image_size: tuple[int, int]
    pixel_mean: Triple = IMAGENET_MEAN
    pixel_std: Triple = IMAGENET_STD
    pads: bool | None = None
    names: tuple[str, ...] | None = None
    flip_pairs: tuple[tuple[int, int], ...] | None = None

    @property
    def is_v1(self) -> bool:
        """Whether this is a Sapiens v1 model."""
        return isinstance(self.encoder, EncoderV1Config)

    def checked(self, where: str) -> ModelConfig:
        """This, if the models can take an input of its size.

        Args:
            where: Names what states the size, in the message.

        Raises:
            WeightsError: They cannot.
        """
        (height, width), cell = self.image_size, self.encoder.cell
        if height % cell or width % cell or min(height, width) <= 0:
            raise WeightsError(
                f"{where}: image_size is {height} x {width}: both sides must be multiples of {cell}"
            )
        head = self.head
        if head is not None and head.scale_inputs:
            rows, columns = height // cell, width // cell
            for _ in head.scale_channels:  # each halves the map, rounding up
                rows, columns = -(-rows // 2), -(-columns // 2)
            if rows * columns * head.scale_channels[-1] != head.scale_inputs:
                raise WeightsError(
                    f"{where}: image_size is {height} x {width}, but the scale of the "
                    f"{head.kind} head was trained for one other size: state that one in a "
                    "config.json beside the weights, and leave image_size out of the job file"
                )
        return self


def grouped_kv_heads(layers: int, heads: int, middle: int | None = None) -> tuple[int, ...]:
    """Key heads per layer: all of them in the first and last eight layers, fewer between.

    Args:
        layers: Number of layers.
        heads: Query heads.
        middle: Key heads between the ends; half of `heads` unless given.
    """
    few = heads // 2 if middle is None else middle
    ends = FULL_ATTENTION_LAYERS
    return tuple(
        heads if index < ends or index >= layers - ends else few for index in range(layers)
    )


def _released(name: str, hidden: int, layers: int, heads: int, tokenizer: int = 0) -> EncoderConfig:
    return EncoderConfig(
        name=name,
        hidden=hidden,
        heads=heads,
        head_dim=hidden // heads,
        kv_heads=grouped_kv_heads(layers, heads),
        ffn_hidden=4 * hidden,
        tokenizer_layers=tokenizer,
    )


SAPIENS2_ENCODERS: Final = MappingProxyType(
    {
        config.name: config
        for config in (
            _released("sapiens2-0.1b", 768, 12, 12),
            _released("sapiens2-0.4b", 1024, 24, 16),
            _released("sapiens2-0.8b", 1280, 32, 16),
            _released("sapiens2-1b", 1536, 40, 24),
            _released("sapiens2-1b-4k", 1536, 40, 24, 4),
            _released("sapiens2-5b", 2432, 56, 32),
        )
    }
)
IMAGE_SIZE: Final = (1024, 768)
IMAGE_SIZE_4K: Final = (4096, 3072)

_POSE = {"0.4b": (1024, 768), "0.8b": (1024, 768), "1b": (1536, 1024), "5b": (1024, 768)}
_POSE_CONVS = {"1b": (768, 512, 256)}
_SHUFFLE_WIDTHS: dict[str, dict[str, tuple[int, ...]]] = {
    "normal": {"5b": (1536, 768, 512, 256)},
    "pointmap": {"5b": (1536, 768, 768, 768)},
    "albedo": {"5b": (1536, 768, 512, 256)},
}
_SHUFFLE_DEFAULT = {"pointmap": (1536, 768, 512, 256)}
_SHUFFLE_CONVS = {("normal", "5b"): (128, 64, 32), ("pointmap", "5b"): (128, 64, 32)}
_SHUFFLE_OUT = {"normal": 3, "pointmap": 3, "albedo": 3, "matting": 4}


def released_head(kind: HeadKind, size: str) -> HeadConfig:
    """Head of a released size, for example `released_head("pose", "0.4b")`.

    Args:
        kind: The task.
        size: `0.4b`, `0.8b`, `1b` or `5b`.
    """
    hidden = SAPIENS2_ENCODERS[f"sapiens2-{size}"].hidden
    if kind == "pose":
        return HeadConfig(
            kind=kind,
            in_channels=hidden,
            out_channels=308,
            upsample="deconv",
            upsample_channels=_POSE[size],
            conv_channels=_POSE_CONVS.get(size, (512, 512, 256)),
            conv_kernel=1,
        )
    if kind == "seg":
        return HeadConfig(
            kind=kind,
            in_channels=hidden,
            out_channels=29,
            upsample="deconv",
            upsample_channels=(512, 256, 128, 64),
            conv_channels=(64, 64),
            conv_kernel=1,
        )
    default = _SHUFFLE_DEFAULT.get(kind, (768, 512, 256, 128))
    with_scale = kind == "pointmap"
    return HeadConfig(
        kind=kind,
        in_channels=hidden,
        out_channels=_SHUFFLE_OUT[kind],
        upsample="pixel_shuffle",
        upsample_channels=_SHUFFLE_WIDTHS.get(kind, {}).get(size, default),
        conv_channels=_SHUFFLE_CONVS.get((kind, size), (64, 32, 16)),
        conv_kernel=3,
        scale_channels=(1536, 512, 128) if with_scale else (),
        scale_hidden=(512, 128) if with_scale else (),
        scale_inputs=128 * 8 * 6 if with_scale else 0,
    )
