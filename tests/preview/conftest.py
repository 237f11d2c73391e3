"""One drawn job and a second one over the same corpus, for all tests of the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.storage import open_store
from tests.labeled_job import make_labeled_job


@pytest.fixture(scope="package")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 samples in two shards."""
    path = tmp_path_factory.mktemp("preview") / "people"
    return make_labeled_job(
        path, num_samples=40, shard_samples=25, chunk_samples=8, row_size=(64, 48), demo=True
    )


@pytest.fixture(scope="package")
def other_job(job: Path) -> Path:
    """The same pictures with other labels."""
    return make_labeled_job(
        job.with_name("others"),
        num_samples=40,
        shard_samples=25,
        chunk_samples=8,
        row_size=(64, 48),
        corpus=job.with_name("people-corpus"),
        label_seed=1,
    )


@pytest.fixture(scope="package")
def manifest(job: Path) -> Manifest:
    return Manifest.open(open_store(str(job)))


@pytest.fixture(scope="package")
def other_manifest(other_job: Path) -> Manifest:
    return Manifest.open(open_store(str(other_job)))
