"""One arena on local disk for all tests of this package."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.matrix import Arena, open_arena, place_of


@pytest.fixture(scope="session")
def arena() -> Iterator[Arena]:
    with place_of("local") as place:
        yield open_arena("local", place)
