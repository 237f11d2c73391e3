"""What a worker and its decoder process say to each other.

How messages travel is left to `exchange`. They are in a module of their own because the decoder
process is the main module of its interpreter, whose classes nobody else could unpickle.
"""

from __future__ import annotations

from dataclasses import dataclass

from sapiens_batch.images.decoded import DecodedImage, DecodeOptions


@dataclass(frozen=True, slots=True)
class Setup:
    """First message to the process.

    Attributes:
        options: The same for all images.
        timeout_s: Seconds that one image may take.
    """

    options: DecodeOptions
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Request:
    """One image, whose bytes are in the memory file.

    Attributes:
        size_bytes: How many.
        crop_density: See `decode`.
    """

    size_bytes: int
    crop_density: float


@dataclass(frozen=True, slots=True)
class Decoded:
    """The answer for an image, whose pixels are in the memory file.

    Attributes:
        image: The image with empty pixels.
        shape: Shape of the pixels.
    """

    image: DecodedImage
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer for bytes that are not decoded; the fields of `SampleError`."""

    reason: str
    message: str


READY = "ready"
"""First message from the process: it has been set up."""
