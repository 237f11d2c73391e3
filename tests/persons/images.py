"""Decoded images for tests that do not care for pixels."""

from __future__ import annotations

import numpy as np

from sapiens_batch.images.decoded import DecodedImage
from sapiens_batch.records import Array, Sample


def image_of_size(height: int, width: int) -> DecodedImage:
    return image_of(np.zeros((height, width, 3), np.uint8))


def image_of(pixels: Array) -> DecodedImage:
    return DecodedImage(pixels, (pixels.shape[0], pixels.shape[1]), 1, 1, "PNG", "pillow")


def sample(boxes: Array | None = None, scores: Array | None = None) -> Sample:
    return Sample("key", 0, b"", boxes, scores)
