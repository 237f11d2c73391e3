"""Say which field of the job file an address that cannot be used came from.

Storage knows addresses only; which field named one is known where the field is read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sapiens_batch.errors import InputError


@contextlib.contextmanager
def errors_of_field(name: str) -> Iterator[None]:
    """Put the name of the field before the message of an input error, and keep its type."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{name}: {error}") from error
