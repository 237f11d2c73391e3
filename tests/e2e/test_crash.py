"""The real command, killed with SIGKILL at named points and resumed, against an undisturbed run.

What unit tests cannot see: that receipts, parts, arrays and commits left by a process that died
between any two writes add up to the same dataset, whichever process the next run is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from sapiens_batch.job.commit import Commit
from sapiens_batch.job.manifest import Manifest
from sapiens_batch.pipeline.faults import FAULTS_VARIABLE, TOKENS_VARIABLE
from sapiens_batch.storage import open_store
from tests.e2e.conftest import write_tar

KILLS = {
    "after-arrays": "kill-driver",
    "after-receipt": "kill-driver",
    "during-seal": "kill",
    "before-commit": "kill",
    "after-commit": "kill",
}
RUN_TIMEOUT_S = 180


@pytest.fixture
def job_file(tmp_path: Path, photos: dict[str, bytes]) -> Path:
    """Three shards of three samples, one of them damaged, in chunks of two."""
    corpus = tmp_path / "in"
    corpus.mkdir()
    whole = [key for key in photos if key != "truncated"]
    for shard in range(3):
        keys = [whole[(shard + i) % len(whole)] for i in range(2)] + ["truncated"]
        files = {f"{shard}-{i}-{key}.jpg": photos[key] for i, key in enumerate(keys)}
        write_tar(corpus / f"{shard:03}.tar", files)
    spec = {
        "name": "crash",
        "source": {"format": "webdataset", "uri": f"{corpus}/{{000..002}}.tar"},
        "persons": {"from": "whole_image"},
        "tasks": {task: {"checkpoint": "demo"} for task in ("pose", "seg", "embedding")},
        "output": {"uri": str(tmp_path / "undisturbed"), "chunk_samples": 2},
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(spec))
    return path


def run(job_file: Path, output: Path, environment: dict[str, str]) -> int:
    """Run the job as a user does; its exit status, negative for a signal."""
    command = [sys.executable, "-c", "from sapiens_batch.cli import main; main()", "run"]
    done = subprocess.run(
        [*command, str(job_file), "--set", f"output.uri={output}"],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    print(done.stdout.decode())
    return done.returncode


def test_a_job_killed_at_every_point_ends_like_an_undisturbed_one(
    job_file: Path, tmp_path: Path
) -> None:
    assert run(job_file, tmp_path / "undisturbed", {}) == 0

    tokens = tmp_path / "tokens"
    tokens.mkdir()
    faults = ",".join(f"{point}={action}" for point, action in KILLS.items())
    environment = {FAULTS_VARIABLE: faults, TOKENS_VARIABLE: str(tokens)}
    statuses = []
    while not statuses or statuses[-1] == -signal.SIGKILL:
        assert len(statuses) <= len(KILLS), f"the job never finished: {statuses}"
        statuses.append(run(job_file, tmp_path / "killed", environment))
    assert statuses[-1] == 0
    assert {token.name for token in tokens.iterdir()} == set(KILLS), "a point was never reached"
    # one run may meet two points: its workers and its driver die together
    assert statuses.count(-signal.SIGKILL) >= 3

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
    assert one.equals(other)


def _commits(root: Path) -> dict[str, Commit]:
    manifest = Manifest.open(open_store(str(root)))
    assert manifest.todo() == []
    return {commit.shard_id: commit for commit in manifest.commits()}
