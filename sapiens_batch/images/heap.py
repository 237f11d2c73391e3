"""Whether the C library gives freed memory back at once.

By default it returns the memory of every large array to the system, which then faults it in again,
page by page and zeroed, for the next one. A process that makes one image after another loses a
third of its time with that (6.7 ms against 4.2 ms for a stretched view of 1.7 megapixels), one that
labels on the CPU a seventh.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

KEPT_BYTES = 128 * 2**20
"""Freed memory up to so much stays with the process; larger arrays are returned at once."""

# From malloc.h of the GNU C library.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


@cache
def keep_freed_memory(kept_bytes: int = KEPT_BYTES) -> None:
    """Let this process keep freed memory; does nothing where the C library is not GNU's.

    Args:
        kept_bytes: How much.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, kept_bytes)
        mallopt(_M_MMAP_THRESHOLD, kept_bytes)
        mallopt(_M_ARENA_MAX, 1)  # else threads have heaps of 64 MB, and map what is larger
