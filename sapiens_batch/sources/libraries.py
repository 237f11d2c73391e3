"""Import the library of a table format when it is first needed, or say what to install."""

from __future__ import annotations

import importlib
from typing import Any

from sapiens_batch.errors import DependencyError


def load_library(name: str, *, extra: str) -> Any:
    """The module `name`, which the extra of that name installs.

    Raises:
        DependencyError: It is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DependencyError(
            f"source format {extra!r} needs {name} ({error}): pip install 'sapiens-batch[{extra}]'"
        ) from error
