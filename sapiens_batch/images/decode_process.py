"""What runs in the process in which images are decoded, and what it says.

Started and asked by `guard`; which pixels come out is left to `decode`. Encoded bytes and pixels
are in a file in memory that both sides map: the bytes from its start on, then the pixels of image
after image.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple, Protocol

import cv2
import numpy as np

from sapiens_batch.child.memory import MemoryFile
from sapiens_batch.errors import SampleError
from sapiens_batch.images.decoded import DecodedImage, DecodeOptions
from sapiens_batch.images.heap import keep_freed_memory
from sapiens_batch.records import Problem

# A cache line, so that no pixel loop starts in the middle of one.
_ALIGNMENT = 64
_FACTS = [field.name for field in fields(DecodedImage)][1:]


class Decoder(Protocol):
    """What decodes: `decode`, or what stands in for it in a test of the guard."""

    def __call__(
        self, encoded: bytes, *, options: DecodeOptions, crop_density: float
    ) -> DecodedImage:
        """See `decode`."""


class Request(NamedTuple):
    """Some images, whose bytes are in the memory file, back to back.

    Attributes:
        sizes_bytes: How many bytes each has.
        crop_density: See `decode`; one for each.
        enough_bytes: After so many bytes of pixels the others are left undecoded.
    """

    sizes_bytes: tuple[int, ...]
    crop_density: tuple[float, ...]
    enough_bytes: float


class Decoded(NamedTuple):
    """The answer for an image, whose pixels are in the memory file.

    Attributes:
        offset: Where they begin.
        shape: Shape of the pixels.
        facts: The fields of `DecodedImage` after its pixels, in their order.
    """

    offset: int
    shape: tuple[int, ...]
    facts: tuple[Any, ...]


Answer = Decoded | Problem


def start_decoding(
    decoder: Decoder, options: DecodeOptions, descriptor: int
) -> Callable[[Request], Iterator[Answer]]:
    """Set the process up.

    Args:
        decoder: What decodes.
        options: The same for all images.
        descriptor: Descriptor of the memory file.
    """
    cv2.setNumThreads(1)
    keep_freed_memory()
    _silence_libraries()
    memory = MemoryFile(descriptor)
    return partial(_answers, decoder, options, memory)


def _answers(
    decoder: Decoder, options: DecodeOptions, memory: MemoryFile, request: Request
) -> Iterator[Answer]:
    start, offset, num_bytes = 0, _aligned(sum(request.sizes_bytes)), 0
    for size_bytes, density in zip(request.sizes_bytes, request.crop_density, strict=True):
        encoded = memory.array(start, (size_bytes,)).tobytes()
        start += size_bytes
        try:
            image = decoder(encoded, options=options, crop_density=density)
        except SampleError as error:
            yield Problem(error.reason, error.message)
            continue
        np.copyto(memory.array(offset, image.pixels.shape), image.pixels)
        yield Decoded(offset, image.pixels.shape, tuple(getattr(image, name) for name in _FACTS))
        offset = _aligned(offset + image.pixels.nbytes)
        num_bytes += image.pixels.nbytes
        if num_bytes >= request.enough_bytes:
            return


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def _silence_libraries() -> None:
    """Drop what libtiff, libpng and libjpeg print about each damaged file: thousands of lines."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)
