"""How an image becomes the input of an ONNX detector.

Which rules hold for a model is left to `onnx_layouts` and `onnx_detector`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from sapiens_batch.errors import SpecError
from sapiens_batch.images.antialias import resize_antialiased
from sapiens_batch.persons.onnx_layouts import Dimension, Layout, Placing, Port, Size
from sapiens_batch.records import Array

if TYPE_CHECKING:
    import onnxruntime

GREY = 114
"""What surrounds a picture that does not fill the input."""

_DTYPES: dict[str, Any] = {
    "tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(uint8)": np.uint8,
}  # fmt: skip
_MASK_DTYPES: dict[str, Any] = {"tensor(int64)": np.int64, "tensor(bool)": np.bool_}


@dataclass(frozen=True, slots=True)
class ImageInput:
    """The image input of a graph.

    Attributes:
        port: The input.
        mask: The input for a mask of the pixels that belong to the image, where there is one.
        channels_last: Whether it is (1, H, W, 3).
        size: (height, width), px; None where it follows from each image.
    """

    port: Port
    mask: Port | None
    channels_last: bool
    size: Size | None

    @property
    def unscaled(self) -> bool:
        """Whether values from 0 to 255 are wanted: bytes, or the channel order of TensorFlow."""
        return self.channels_last or self.port.type_name == "tensor(uint8)"


@dataclass(frozen=True, slots=True)
class Canvas:
    """What the model sees of an image.

    Attributes:
        pixels: (h, w, 3) uint8.
        left: Column where the image begins.
        top: Row where the image begins.
        content: (height, width) of the image on the canvas.
    """

    pixels: Array
    left: int
    top: int
    content: Size


def find_image_input(ports: Sequence[Port], name: str) -> ImageInput:
    """The input for the image among the inputs of a graph.

    Raises:
        SpecError: There is none, or the graph wants something else as well.
    """
    images = [port for port in ports if len(port.shape) == 4 and port.type_name in _DTYPES]
    masks = [port for port in ports if port.name == "pixel_mask" and len(port.shape) == 3]
    if len(images) == 1 and len(images) + len(masks) == len(ports):
        (port,) = images
        channels_last = port.shape[3] == 3
        channels = port.shape[3 if channels_last else 1]
        height, width = port.shape[1:3] if channels_last else port.shape[2:4]
        if _may_be(port.shape[0], 1) and _may_be(channels, 3) and 0 not in (height, width):
            size = (height, width) if isinstance(height, int) and isinstance(width, int) else None
            return ImageInput(port, masks[0] if masks else None, channels_last, size)
    found = ", ".join(f"{port} {port.type_name}" for port in ports)
    raise SpecError(
        f"{name} has the inputs {found}; supported is one image (1, 3, H, W) or (1, H, W, 3) of "
        "float32, float16 or uint8, beside it at most `pixel_mask` (1, H, W)"
    )


def _may_be(length: Dimension, wanted: int) -> bool:
    return length == wanted or not isinstance(length, int)


def size_between(height: int, width: int, shortest: int, longest: int) -> Size:
    """(height, width) of the shortest side wanted, or less if the other would be too long.

    Rounded as the transformers library does it, so that the model sees the same pixels.
    """
    short, long = sorted((height, width))
    exact = min(float(shortest), longest * short / long)
    side = max(1, round(exact))
    other = max(1, int(exact * long / short))
    return (side, other) if height <= width else (other, side)


def place(pixels: Array, size: Size, placing: Placing) -> Canvas:
    """Put (h, w, 3) uint8 pixels on a canvas of a size, (height, width)."""
    if placing == "stretched":
        return Canvas(resize_antialiased(pixels, size), 0, 0, size)
    height, width = pixels.shape[:2]
    scale = min(size[0] / height, size[1] / width)
    content = max(1, round(height * scale)), max(1, round(width * scale))
    # not antialiased, because the publishers of such models do not
    resized = cv2.resize(pixels, content[::-1], interpolation=cv2.INTER_LINEAR)
    top, left = (
        ((size[0] - content[0]) // 2, (size[1] - content[1]) // 2)
        if placing == "centred"
        else (0, 0)
    )
    canvas = np.full((*size, 3), GREY, np.uint8)
    canvas[top : top + content[0], left : left + content[1]] = resized
    return Canvas(canvas, left, top, content)


def run(
    session: onnxruntime.InferenceSession, image: ImageInput, layout: Layout, canvas: Array
) -> list[Array]:
    """What a graph finds on a canvas, (h, w, 3) uint8: the outputs that the layout is made of."""
    rules = layout.rules
    batch: Array = canvas[None, ..., ::-1] if rules.order == "bgr" else canvas[None]  # (1, h, w, 3)
    dtype = _DTYPES[image.port.type_name]
    if dtype != np.uint8:
        mean, std = (np.array(one, np.float32) for one in (rules.mean, rules.std))
        batch = (batch * np.float32(rules.scale) - mean) / std
    if not image.channels_last:
        batch = batch.transpose(0, 3, 1, 2)
    feed = {image.port.name: np.ascontiguousarray(batch, dtype)}
    if image.mask is not None:
        fixed = [side for side in image.mask.shape[1:] if isinstance(side, int)]
        shape = fixed if len(fixed) == 2 else canvas.shape[:2]
        feed[image.mask.name] = np.ones(
            (1, *shape), _MASK_DTYPES.get(image.mask.type_name, np.float32)
        )
    found: list[Array] = session.run(list(layout.outputs), feed)
    return found
