"""Binary masks as COCO writes them: run lengths in column-major order, and polygons.

Masks are (height, width) bool in source pixels or on a frame, whichever the caller has. Choosing
classes is left to `sample`. Encoding loses nothing: decoding run lengths gives the mask back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sapiens_batch.errors import InputError
from sapiens_batch.records import Array


def run_lengths(mask: Array) -> list[int]:
    """Lengths of the runs down the columns, beginning with the background's, which may be 0.

    The mask is (height, width), anything but zero is inside.
    """
    flat = np.asarray(mask, bool).ravel(order="F")
    if not len(flat):
        return [0]
    edges = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    lengths = np.diff(edges, prepend=0, append=len(flat)).tolist()
    return [0, *lengths] if flat[0] else lengths


def encode_rle(mask: Array) -> dict[str, Any]:
    """A (height, width) mask as COCO's compressed RLE, as pycocotools takes it from a JSON file.

    Returns:
        `size` [height, width] and `counts`, the compressed run lengths as text.
    """
    return {"size": list(np.shape(mask)), "counts": _compressed(run_lengths(mask))}


def decode_rle(rle: Mapping[str, Any]) -> Array:
    """The mask of a compressed or uncompressed COCO RLE.

    Returns:
        (height, width) bool.

    Raises:
        InputError: The run lengths do not add up to the size.
    """
    height, width = rle["size"]
    counts = rle["counts"]
    lengths = counts if isinstance(counts, list) else _expanded(counts)
    if sum(lengths) != height * width or min(lengths, default=0) < 0:
        raise InputError(
            f"run lengths of a mask add up to {sum(lengths)}, its size {height} x {width} to "
            f"{height * width}; the mask is damaged or of another image"
        )
    inside = np.arange(len(lengths)) % 2 == 1
    mask: Array = np.repeat(inside, lengths).reshape((height, width), order="F")
    return mask


def bounding_box(mask: Array) -> tuple[int, int, int, int] | None:
    """COCO xywh of the pixels inside, whole pixels; None for an empty mask."""
    rows, columns = np.flatnonzero(np.any(mask, axis=1)), np.flatnonzero(np.any(mask, axis=0))
    if not len(rows):
        return None
    left, top = int(columns[0]), int(rows[0])
    return left, top, int(columns[-1]) - left + 1, int(rows[-1]) - top + 1


def polygons(mask: Array, *, tolerance_px: float = 0.5) -> list[Array]:
    """Outlines of the parts of a mask, outermost edges only: holes are not cut out.

    Args:
        mask: (height, width), anything but zero is inside.
        tolerance_px: How far an outline may stray from the pixels' centres; 0 keeps every vertex.

    Returns:
        One (n, 2) float32 array of (x, y) at pixel centres for each part of three or more
        vertices. Smaller parts have no outline; `encode_rle` keeps them.
    """
    import cv2  # half of the callers need run lengths only

    found, _ = cv2.findContours(
        np.ascontiguousarray(mask, np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE
    )
    outlines = [cv2.approxPolyDP(one, tolerance_px, closed=True)[:, 0] for one in found]
    return [one.astype(np.float32) for one in outlines if len(one) >= 3]


def _compressed(lengths: list[int]) -> str:
    """COCO's text form: differences to the run before the last, 5 bits a character from `0`."""
    characters = []
    for position, length in enumerate(lengths):
        value = length - lengths[position - 2] if position > 2 else length
        while True:
            bits, value = value & 31, value >> 5
            more = value != (-1 if bits & 16 else 0)
            characters.append(chr(48 + (bits | 32 if more else bits)))
            if not more:
                break
    return "".join(characters)


def _expanded(counts: str | bytes) -> list[int]:
    """The inverse of `_compressed`."""
    data = counts.encode("ascii") if isinstance(counts, str) else counts
    lengths: list[int] = []
    value = shift = 0
    for character in data:
        bits = character - 48
        value |= (bits & 31) << shift
        shift += 5
        if not bits & 32:
            if bits & 16:
                value -= 1 << shift
            lengths.append(value + lengths[-2] if len(lengths) > 2 else value)
            value = shift = 0
    return lengths
