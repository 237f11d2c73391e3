"""One encoded image to upright RGB pixels, or a named reason why not.

The content decides the format, never a file name; sizes are checked on the header, before pixels
are allocated. Finding persons and cutting views is left to others.

Invariants: nothing but `SampleError` escapes, whatever the bytes are; incomplete images are refused
and never filled up; the same bytes always take the same path, so labels depend on content alone.
"""

from __future__ import annotations

import io
import struct
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
from PIL import ExifTags, Image, ImageFile

from sapiens_batch.errors import SampleError
from sapiens_batch.images import pixels
from sapiens_batch.images.sniff import sniff_format
from sapiens_batch.records import Array


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """The largest image that is decoded; larger ones are quarantined as `decode.too_large`.

    Attributes:
        max_pixels: Height times width. The default is where Pillow itself refuses (0.5 GB as RGB).
        max_side: Longest side, px. The default is the limit of the JPEG format.
    """

    max_pixels: int = 178_956_970
    max_side: int = 65_535


@dataclass(frozen=True, slots=True)
class DecodedImage:
    """An upright image.

    Attributes:
        pixels: (H, W, 3) uint8 RGB, contiguous, orientation applied, alpha laid over white.
        orientation: EXIF orientation as stored, 1 to 8; 1 where it is missing or not legal.
        format: Format by content, for example `JPEG`.
        decoder: Library that made the pixels, `opencv` or `pillow`.
    """

    pixels: Array
    orientation: int
    format: str
    decoder: str


DEFAULT_LIMITS = DecodeLimits()

_UPRIGHT: dict[int, Callable[[Array], Array]] = {
    2: lambda image: cv2.flip(image, 1),
    3: lambda image: cv2.rotate(image, cv2.ROTATE_180),
    4: lambda image: cv2.flip(image, 0),
    5: cv2.transpose,
    6: lambda image: cv2.rotate(image, cv2.ROTATE_90_CLOCKWISE),
    7: lambda image: cv2.flip(cv2.transpose(image), -1),
    8: lambda image: cv2.rotate(image, cv2.ROTATE_90_COUNTERCLOCKWISE),
}


def decode(encoded: bytes, *, limits: DecodeLimits = DEFAULT_LIMITS) -> DecodedImage:
    """Decode the first frame of an image file.

    Args:
        encoded: The file's bytes.
        limits: The largest image that may be decoded.

    Raises:
        SampleError: With the reason `decode.empty` (no bytes), `decode.unknown_format` (not an
            image), `decode.unsupported` (an image of a kind that is not decoded),
            `decode.too_large` (over `limits`), `decode.truncated` (cut short) or `decode.corrupt`.
    """
    if not encoded:
        raise SampleError("decode.empty", "the image has 0 bytes; write the file again")
    name = sniff_format(encoded)
    with warnings.catch_warnings():
        # Pillow warns about metadata that has no bearing on pixels, and about sizes that are
        # checked here.
        warnings.simplefilter("ignore")
        try:
            return _decode(encoded, name, limits)
        except SampleError:
            raise
        except Exception as error:  # damaged files make the plugins raise almost any type
            raise _explain(error, encoded, name) from error


def _decode(encoded: bytes, name: str, limits: DecodeLimits) -> DecodedImage:
    image = _open(encoded, name)
    _check_size(image.size, name, limits)
    if name == "TIFF":
        orientation = _stored_orientation(image)  # Pillow turns TIFF while loading, and forgets it
        rgb, decoder = _load(encoded, image, name), "pillow"
    else:
        fast = _decode_jpeg(encoded, image) if name == "JPEG" else None
        stored = _load(encoded, image, name) if fast is None else fast
        decoder = "pillow" if fast is None else "opencv"
        orientation = _stored_orientation(image)
        rgb = _UPRIGHT[orientation](stored) if orientation in _UPRIGHT else stored
    return DecodedImage(np.ascontiguousarray(rgb), orientation, name, decoder)


def _load(encoded: bytes, image: ImageFile.ImageFile, name: str) -> Array:
    if name == "PNG":
        _open(encoded, name).verify()  # loading skips the checksums of image data
    image.load()
    return pixels.to_rgb(image)


def _open(encoded: bytes, name: str) -> ImageFile.ImageFile:
    """Parse the header with the one plugin for this format, which names what it dislikes."""
    if name not in Image.OPEN:
        Image.init()
    plugin, _ = Image.OPEN[name]
    return plugin(io.BytesIO(encoded), "")


def _check_size(size: tuple[int, int], name: str, limits: DecodeLimits) -> None:
    width, height = size
    if width * height > limits.max_pixels or max(size) > limits.max_side:
        raise SampleError(
            "decode.too_large",
            f"{name} of {width} x {height} px; the limits are {limits.max_pixels} px in all and "
            f"{limits.max_side} px a side; scale it down or raise the limits",
        )


def _decode_jpeg(encoded: bytes, image: ImageFile.ImageFile) -> Array | None:
    """Decode a plain JPEG with OpenCV: the same pixels as Pillow's in half the time.

    Returns:
        (H, W, 3) uint8 as stored, or None where OpenCV refuses or is known to differ; Pillow then
        decides, and names the reason if it refuses too.
    """
    if image.mode not in {"RGB", "L"}:
        return None
    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        rgb: Array | None = cv2.imdecode(np.frombuffer(encoded, np.uint8), flags)
    except cv2.error:
        return None
    if rgb is None or rgb.shape != (image.height, image.width, 3):
        return None
    return rgb


def _stored_orientation(image: ImageFile.ImageFile) -> int:
    try:
        stored = image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # broken EXIF raises almost any type and says nothing about the pixels
        return 1
    return stored if isinstance(stored, int) and 1 <= stored <= 8 else 1


def _explain(error: Exception, encoded: bytes, name: str) -> SampleError:
    detail = f"{name} of {len(encoded)} bytes: {error}".rstrip(": ")
    if isinstance(error, (MemoryError, Image.DecompressionBombError)):
        return SampleError("decode.too_large", f"{detail}; scale it down")
    if str(error).startswith("cannot handle"):
        return SampleError("decode.unsupported", f"{detail}; convert the image to 8-bit RGB")
    if _ends_early(error, encoded, name):
        return SampleError("decode.truncated", f"{detail}; the end is missing, fetch it again")
    return SampleError("decode.corrupt", f"{detail}; the file is damaged, fetch or write it again")


def _ends_early(error: Exception, encoded: bytes, name: str) -> bool:
    if name == "WEBP" and int.from_bytes(encoded[4:8], "little") + 8 > len(encoded):
        return True
    # Pillow wraps what went wrong in a header in a SyntaxError.
    ran_out = isinstance(error.__cause__ or error, (EOFError, IndexError, struct.error))
    return ran_out or "truncated" in str(error).lower()
