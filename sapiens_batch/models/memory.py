"""Whether an exception says that memory ran out: decided here, for devices and for the host.

Imports no torch: its exceptions are told by their text, which also tells those of libraries that
wrap them.
"""

from __future__ import annotations

_MESSAGES = ("out of memory", "not enough memory", "can't allocate memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that host or device memory ran out."""
    message = str(error).lower()
    return isinstance(error, MemoryError) or any(part in message for part in _MESSAGES)
