"""What a failed request to an object store means: taken, busy, refused, or broken.

Clients raise what they like, also outside OSError, and servers word the same refusal differently.
What to do about it is left to the store.
"""

from __future__ import annotations

import errno
import re
from typing import Final

from sapiens_batch.errors import StorageError
from sapiens_batch.storage.base import MissingObjectError

_TRANSIENT_ERRNOS: Final = {
    errno.EBUSY, errno.EREMOTEIO, errno.EAGAIN, errno.EPIPE, errno.ETIMEDOUT
}  # fmt: skip
_TRANSIENT_WORDS: Final = re.compile(
    r"\b(429|500|502|503|504)\b|slow ?down|reduce your request rate|too many requests"
    r"|service unavailable|internal error|timed? ?out|connection (reset|closed|broken)"
    r"|conditional request conflict|ConditionalRequestConflict|incomplete|payload"
    r"|ServerDisconnected",
    re.IGNORECASE,
)
_AUTHORITY_WORDS: Final = re.compile(
    r"expired|InvalidToken|TokenRefreshRequired|InvalidAccessKeyId|RequestTimeTooSkewed",
    re.IGNORECASE,
)


def is_taken(error: Exception) -> bool:
    """Whether a conditional create was refused because the key exists."""
    # s3fs raises FileExistsError only where the server names the header, else a bare EINVAL.
    if isinstance(error, FileExistsError):
        return True
    text = f"{error} {error.__cause__}".lower()
    return "pre-condition" in text or "precondition" in text


def is_authority(error: Exception) -> bool:
    """Whether credentials were refused, which a fresh set may mend."""
    if isinstance(error, PermissionError):
        return True
    return bool(_AUTHORITY_WORDS.search(f"{type(error).__name__} {error} {error.__cause__}"))


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(error, MissingObjectError | FileNotFoundError | PermissionError):
        return False
    if isinstance(error, TimeoutError | ConnectionError | StorageError):
        return True
    if isinstance(error, OSError) and error.errno in _TRANSIENT_ERRNOS:
        return True
    return bool(_TRANSIENT_WORDS.search(f"{type(error).__name__} {error}"))
