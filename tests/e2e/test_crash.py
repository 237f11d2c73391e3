"""The real command with real models, killed with SIGKILL and resumed, against an undisturbed run.

What the fault matrix (`tests/chaos`) leaves out to be quick: the command line, opening the job
anew, and labels of models, which must not depend on which process made them.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from sapiens_batch.driver.run import run_job
from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.spec.loading import load_spec
from sapiens_batch.storage import open_store
from tests.cluster import SharedCluster
from tests.e2e.conftest import Recorder, write_tar

COMMAND = [sys.executable, "-c", "from sapiens_batch.cli import main; main()", "run"]
RUN_TIMEOUT_S = 240


@pytest.fixture
def job_file(tmp_path: Path, photos: dict[str, bytes]) -> Path:
    """Two shards of three samples, one of them damaged, in chunks of two."""
    corpus = tmp_path / "in"
    corpus.mkdir()
    whole = [key for key in photos if key != "truncated"]
    for shard in range(2):
        keys = [whole[(shard + i) % len(whole)] for i in range(2)] + ["truncated"]
        files = {f"{shard}-{i}-{key}.jpg": photos[key] for i, key in enumerate(keys)}
        write_tar(corpus / f"{shard:03}.tar", files)
    spec = {
        "name": "crash",
        "source": {"format": "webdataset", "uri": f"{corpus}/{{000..001}}.tar"},
        "persons": {"from": "whole_image"},
        "tasks": {task: {"checkpoint": "demo"} for task in ("pose", "seg", "embedding")},
        "output": {"uri": str(tmp_path / "killed"), "chunk_samples": 2},
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(spec))
    return path


@pytest.fixture
def killed(job_file: Path, ray_cluster: SharedCluster) -> Callable[[str], int]:
    """Run the command until a point kills it; its exit status."""

    def run(point: str) -> int:
        ray_cluster.arm(point, "kill-driver")
        done = subprocess.run(
            [*COMMAND, str(job_file)],
            env=ray_cluster.driver_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        print(done.stdout.decode())
        assert ray_cluster.has_fired(point)
        return done.returncode

    return run


def test_a_killed_job_ends_like_an_undisturbed_one(
    job_file: Path, tmp_path: Path, killed: Callable[[str], int]
) -> None:
    undisturbed = load_spec(job_file, [f"output.uri={tmp_path / 'undisturbed'}"])
    assert run_job(undisturbed, Recorder()).exit_code == 0

    assert killed("after-arrays") == -signal.SIGKILL
    assert killed("before-commit") == -signal.SIGKILL
    assert run_job(load_spec(job_file), Recorder()).exit_code == 0
    _assert_same_dataset(tmp_path / "undisturbed", tmp_path / "killed")


def _assert_same_dataset(one: Path, other: Path) -> None:
    commits = [_commits(root) for root in (one, other)]
    assert commits[0].keys() == commits[1].keys()
    for shard_id, commit in commits[0].items():
        twin = commits[1][shard_id]
        assert (commit.num_samples, commit.counts) == (twin.num_samples, twin.counts)
        for table in commit.tables:
            rows = [
                pq.read_table(root / found.tables[table].key)
                for root, found in ((one, commit), (other, twin))
            ]
            _assert_same_rows(rows[0], rows[1])
        digests = [
            {task: [chunk.sha256 for chunk in array.chunks] for task, array in found.arrays.items()}
            for found in (commit, twin)
        ]
        assert digests[0] == digests[1], "array bytes differ"
    visible = [table.key for commit in commits[1].values() for table in commit.tables.values()]
    assert len(visible) == len(set(visible))


def _assert_same_rows(one: pa.Table, other: pa.Table) -> None:
    assert one.schema.equals(other.schema, check_metadata=True)
    rows = list(zip(one["index"].to_pylist(), one["key"].to_pylist(), strict=True))
    assert rows == sorted(rows)
    # an attempt that met what a dead one left, and sealing after it, store under names of their own
    names = [name for name in one.column_names if name.endswith("_array")]
    assert one.drop_columns(names).equals(other.drop_columns(names))


def _commits(root: Path) -> dict[str, Commit]:
    manifest = Manifest.open(open_store(str(root)))
    assert manifest.todo() == []
    return {commit.shard_id: commit for commit in manifest.commits()}
