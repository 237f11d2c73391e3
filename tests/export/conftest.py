"""A labeled job to export, written once, and a short way to export it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sapiens_batch.export import ExportRequest, ExportSummary, export_labels
from sapiens_batch.labelset import LabelSet, open_labels
from tests.labeled_job import make_labeled_job

NUM_SAMPLES = 26
NUM_LABELED = 24
"""Samples 7 and 13 are quarantined."""

ExportTo = Callable[..., Path]


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three shards of 11, 11 and 4 samples with all tasks."""
    path = tmp_path_factory.mktemp("export") / "job"
    return make_labeled_job(path, num_samples=NUM_SAMPLES, chunk_samples=8, shard_samples=11)


@pytest.fixture(scope="session")
def labels(job: Path) -> LabelSet:
    return open_labels(str(job))


@pytest.fixture(scope="session")
def export_to(job: Path) -> ExportTo:
    """Export to a folder; returns the folder."""

    def export(folder: Path, format_name: str, **options: Any) -> Path:
        summary = run(job, folder, format_name, **options)
        assert summary.complete
        return folder

    return export


def run(job: Path, folder: Path, format_name: str, **asked: Any) -> ExportSummary:
    named = {
        name: asked.pop(name) for name in ("where", "select", "pictures", "part") if name in asked
    }
    return export_labels(format_name, ExportRequest(str(job), str(folder), asked, **named))
