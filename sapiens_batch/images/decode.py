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

import cv2
import numpy as np
from PIL import ExifTags, Image, ImageFile

from sapiens_batch.errors import SampleError
from sapiens_batch.images import pixels
from sapiens_batch.images.colour import to_srgb
from sapiens_batch.images.decoded import ColourProfile, DecodedImage, DecodeOptions
from sapiens_batch.images.reduction import NEVER, reduction_for
from sapiens_batch.images.sniff import sniff_format
from sapiens_batch.records import Array

DEFAULT_OPTIONS = DecodeOptions()

# OpenCV's flags for libjpeg's scaled decoding; they combine with the colour flags.
_REDUCED_FLAGS = {1: 0, 2: 16, 4: 32, 8: 64}
# These plugins turn the image while loading, and forget what was stored.
_TURNED_BY_PILLOW = frozenset({"TIFF", "HEIF"})

_UPRIGHT: dict[int, Callable[[Array], Array]] = {
    2: lambda image: cv2.flip(image, 1),
    3: lambda image: cv2.rotate(image, cv2.ROTATE_180),
    4: lambda image: cv2.flip(image, 0),
    5: cv2.transpose,
    6: lambda image: cv2.rotate(image, cv2.ROTATE_90_CLOCKWISE),
    7: lambda image: cv2.flip(cv2.transpose(image), -1),
    8: lambda image: cv2.rotate(image, cv2.ROTATE_90_COUNTERCLOCKWISE),
}


def decode(
    encoded: bytes,
    *,
    options: DecodeOptions = DEFAULT_OPTIONS,
    crop_density: float = NEVER,
) -> DecodedImage:
    """Decode the first frame of an image file.

    Args:
        encoded: The file's bytes.
        options: Limits, background, and whether and how far the image may be reduced.
        crop_density: The most view pixels per source pixel that crops of this image will need;
            without knowing it the image is never reduced.

    Raises:
        SampleError: With the reason `decode.empty` (no bytes), `decode.unknown_format` (not an
            image), `decode.unsupported` (an image of a kind that is not decoded),
            `decode.too_large` (over the limits), `decode.truncated` (cut short) or
            `decode.corrupt`.
    """
    if not encoded:
        raise SampleError("decode.empty", "the image has 0 bytes; write the file again")
    name = sniff_format(encoded)
    with warnings.catch_warnings():
        # Pillow warns about metadata that has no bearing on pixels, and about sizes that are
        # checked here.
        warnings.simplefilter("ignore")
        try:
            return _decode(encoded, name, options, crop_density)
        except SampleError:
            raise
        except Exception as error:  # damaged files make the plugins raise almost any type
            raise _explain(error, encoded, name) from error


def _decode(encoded: bytes, name: str, options: DecodeOptions, density: float) -> DecodedImage:
    image = _open(encoded, name)
    _check_size(image.size, name, options)
    orientation = _stored_orientation(image) if name in _TURNED_BY_PILLOW else None
    stored, profile, decoder, reduction = _load(encoded, image, name, options, density)
    if orientation is None:
        orientation = _stored_orientation(image)
        upright = _UPRIGHT[orientation](stored) if orientation in _UPRIGHT else stored
    else:
        upright = stored
    size = (upright.shape[0], upright.shape[1])
    if reduction > 1:
        size = (image.width, image.height) if orientation >= 5 else (image.height, image.width)
    return DecodedImage(
        pixels=np.ascontiguousarray(upright),
        size=size,
        reduction=reduction,
        orientation=orientation,
        format=name,
        decoder=decoder,
        animated=_has_more_frames(image),
        colour_profile=profile,
    )


def _load(
    encoded: bytes,
    image: ImageFile.ImageFile,
    name: str,
    options: DecodeOptions,
    density: float,
) -> tuple[Array, ColourProfile, str, int]:
    """Pixels as stored, what became of the colour profile, the library, and the reduction."""
    if name == "JPEG":
        reduction = _reduction(image, options, density)
        fast = _decode_jpeg(encoded, image, reduction)
        if fast is not None:
            return *_to_srgb(fast, image.info.get("icc_profile")), "opencv", reduction
    if name == "PNG":
        _open(encoded, name).verify()  # loading skips the checksums of image data
    image.load()
    rgb, profile = pixels.to_rgb(image, background=options.background)
    return rgb, profile, "pillow-heif" if name == "HEIF" else "pillow", 1


def _to_srgb(rgb: Array, profile: bytes | None) -> tuple[Array, ColourProfile]:
    if not profile:
        return rgb, "none"
    converted, found = to_srgb(Image.fromarray(rgb), profile)
    return (np.asarray(converted), found) if found == "converted" else (rgb, found)


def _reduction(image: ImageFile.ImageFile, options: DecodeOptions, density: float) -> int:
    if not options.scaled:
        return 1
    turned = _stored_orientation(image) >= 5
    size = (image.width, image.height) if turned else (image.height, image.width)
    return reduction_for(size, options.image_views, density)


def _open(encoded: bytes, name: str) -> ImageFile.ImageFile:
    """Parse the header with the one plugin for this format, which names what it dislikes."""
    if name == "HEIF":
        return _open_heif(encoded)
    if name not in Image.OPEN:
        Image.init()
    plugin, _ = Image.OPEN[name]
    return plugin(io.BytesIO(encoded), "")


def _open_heif(encoded: bytes) -> ImageFile.ImageFile:
    try:
        import pillow_heif
    except ImportError as error:
        raise SampleError(
            "decode.unsupported",
            "HEIF is decoded by the extra `heif` only: install sapiens-batch[heif], or convert "
            "the image to JPEG",
        ) from error
    pillow_heif.options.DECODE_THREADS = 1
    plugin: type[ImageFile.ImageFile] = pillow_heif.HeifImageFile
    return plugin(io.BytesIO(encoded))


def _check_size(size: tuple[int, int], name: str, options: DecodeOptions) -> None:
    width, height = size
    if width * height > options.max_pixels or max(size) > options.max_side:
        raise SampleError(
            "decode.too_large",
            f"{name} of {width} x {height} px; the limits are {options.max_pixels} px in all and "
            f"{options.max_side} px a side; scale it down or raise the limits",
        )


def _decode_jpeg(encoded: bytes, image: ImageFile.ImageFile, reduction: int) -> Array | None:
    """Decode a plain JPEG with OpenCV: the same pixels as Pillow's in half the time.

    Returns:
        (h, w, 3) uint8 as stored, h and w reduced and rounded up, or None where OpenCV refuses or
        is known to differ; Pillow then decides, and names the reason if it refuses too.
    """
    if image.mode not in {"RGB", "L"}:
        return None
    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION | _REDUCED_FLAGS[reduction]
    try:
        rgb: Array | None = cv2.imdecode(np.frombuffer(encoded, np.uint8), flags)
    except cv2.error:
        return None
    if rgb is None or rgb.shape != (-(-image.height // reduction), -(-image.width // reduction), 3):
        return None
    return rgb


def _has_more_frames(image: ImageFile.ImageFile) -> bool:
    try:
        return bool(getattr(image, "is_animated", False))
    except Exception:  # it looks at later frames, whose damage says nothing about the first one
        return False


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
