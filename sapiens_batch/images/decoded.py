"""What a decoder is asked for, and what it gives back.

Both cross the border to the decoder process, so they are plain values. How images are decoded is
left to `decode`, which factor may be used to `reduction`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sapiens_batch.records import Array, ViewSpec

ColourProfile = Literal["none", "srgb", "converted", "ignored"]

WHITE = (255, 255, 255)


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """Everything besides the bytes that decides the pixels, or whether there are any.

    Attributes:
        max_pixels: Largest height times width; larger ones are refused as `decode.too_large`. The
            default is where Pillow itself refuses (0.5 GB as RGB).
        max_side: Longest side, px. The default is the limit of the JPEG format.
        background: RGB that transparent pixels are laid over.
        scaled: Whether JPEGs may be decoded at 1/2, 1/4 or 1/8 of their size.
        image_views: The views that are made of the whole image; they bound the scale.
    """

    max_pixels: int = 178_956_970
    max_side: int = 65_535
    background: tuple[int, int, int] = WHITE
    scaled: bool = False
    image_views: tuple[ViewSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class DecodedImage:
    """An upright image.

    Attributes:
        pixels: (h, w, 3) uint8 sRGB, contiguous, orientation applied, alpha laid over the
            background. Of the source's size unless `reduction` says otherwise.
        size: (height, width) of the upright source, px.
        reduction: 1, 2, 4 or 8: a pixel covers so many source pixels along each axis, the last one
            of a row or column perhaps fewer.
        orientation: EXIF orientation as stored, 1 to 8; 1 where it is missing or not legal.
        format: Format by content, for example `JPEG`.
        decoder: Library that made the pixels: `opencv`, `pillow` or `pillow-heif`.
        animated: Whether the file holds further frames; the first one is taken.
        colour_profile: What became of an embedded ICC profile: there was `none`, it is `srgb`
            already, the pixels were `converted`, or it is damaged or of another colour space and
            was `ignored`.
    """

    pixels: Array
    size: tuple[int, int]
    reduction: int
    orientation: int
    format: str
    decoder: str
    animated: bool = False
    colour_profile: ColourProfile = "none"
