"""Fixtures shared by all tests: where the material outside the repository lies, thread limits."""

from __future__ import annotations

from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
SHARED = REPO.parent / "shared"
REFERENCES = REPO / "tests" / "reference" / "tensors"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with photos, shards and difficult files that may not be part of the repository."""
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is missing: it holds test material that may not be committed")
    return SHARED


@pytest.fixture(scope="session")
def references() -> Path:
    """Reference tensors: `port` from the transformers models, `original` from the original code."""
    return REFERENCES
