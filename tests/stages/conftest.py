"""Labeled chunks without models."""

from __future__ import annotations

import pytest

from tests.small_tasks import MakeChunk, labeled_chunk


@pytest.fixture
def make_chunk() -> MakeChunk:
    """`labeled_chunk`."""
    return labeled_chunk
