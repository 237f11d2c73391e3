"""Real jobs: one Ray for the session, corpora made from the bundled photos."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sapiens_batch.driver.progress import Progress
from sapiens_batch.samples import build
from sapiens_batch.spec.job import JobSpec
from sapiens_batch.spec.loading import parse_spec
from tests.cluster import SharedCluster, shared_cluster

TASKS = ("embedding", "pose", "seg", "normal", "pointmap")


class Recorder:
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.updates = 0

    def message(self, text: str) -> None:
        self.messages.append(text)

    def update(self, progress: Progress) -> None:
        self.updates += 1

    def close(self) -> None:
        pass


@pytest.fixture(scope="session")
def ray_cluster() -> SharedCluster:
    """The Ray of the session."""
    return shared_cluster()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(scope="session")
def photos() -> dict[str, bytes]:
    """The bundled photos by key, the truncated one among them."""
    files = build.members()
    return {Path(name).stem: data for name, data in files.items() if name.endswith(".jpg")}


@pytest.fixture(scope="session")
def boxes() -> dict[str, list[list[float]]]:
    """COCO xywh boxes of the bundled photos by key."""
    files = build.members()
    found = {Path(name).stem: data for name, data in files.items() if name.endswith(".json")}
    return {key: json.loads(data)["boxes"] for key, data in found.items()}


def write_tar(path: Path, files: dict[str, bytes]) -> Path:
    """A tar with these members in this order."""
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def write_parquet(
    path: Path, photos: dict[str, bytes], boxes: dict[str, list[list[float]]]
) -> Path:
    """A Parquet file as Hugging Face writes one, with a boxes column."""
    images = [{"bytes": data, "path": f"{key}.jpg"} for key, data in photos.items()]
    table = pa.table(
        {
            "key": list(photos),
            "image": pa.array(images, pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
            "boxes": pa.array(
                [boxes.get(key, []) for key in photos], pa.list_(pa.list_(pa.float32()))
            ),
        }
    )
    pq.write_table(table, path)
    return path


@pytest.fixture
def make_spec(tmp_path: Path) -> Callable[..., JobSpec]:
    """Build a job over some source that writes below `tmp_path`."""

    def make(source: dict[str, Any], **changes: Any) -> JobSpec:
        values: dict[str, Any] = {
            "name": "test",
            "source": source,
            "tasks": {task: {"checkpoint": "demo"} for task in TASKS},
            "output": {"uri": str(tmp_path / "labels"), "chunk_samples": 2},
        }
        return parse_spec(values | changes)

    return make
