"""A decoder that dies, hangs or misbehaves on request, for the tests of its guard."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

from sapiens_batch.images.decode import decode
from sapiens_batch.images.decoded import DecodedImage, DecodeOptions


def faulty(encoded: bytes, *, options: DecodeOptions, crop_density: float) -> DecodedImage:
    if encoded == b"SEGFAULT":
        ctypes.string_at(0)
    if encoded == b"HANG":
        time.sleep(600)
    if encoded == b"EXIT":
        os._exit(7)
    if encoded.startswith(b"SLOW "):
        time.sleep(0.4)
        encoded = encoded.removeprefix(b"SLOW ")
    if encoded.startswith(b"CRASH ONCE "):
        marker = Path(encoded.removeprefix(b"CRASH ONCE ").decode())
        if not marker.exists():
            marker.touch()
            ctypes.string_at(0)
        encoded = marker.with_suffix(".jpg").read_bytes()
    if encoded.startswith(b"PRINT "):
        os.write(1, b"libraries print what they like")
        encoded = encoded.removeprefix(b"PRINT ")
    return decode(encoded, options=options, crop_density=crop_density)
