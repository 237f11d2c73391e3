"""One job over every difficult file and damaged shard there is: it finishes, and it adds up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sapiens_batch.driver.run import JobSummary, run_job
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.spec.job import JobSpec
from sapiens_batch.storage import open_store
from tests.e2e.conftest import Recorder

pytestmark = pytest.mark.usefixtures("ray_cluster")

SEG = {"seg": {"checkpoint": "demo"}}


def label(make_spec: Callable[..., JobSpec], tmp_path: Path, source: dict[str, Any]) -> JobSummary:
    output = {"uri": str(tmp_path / "labels"), "chunk_samples": 16}
    return run_job(make_spec(source, tasks=SEG, output=output), Recorder())


def images(tmp_path: Path) -> list[dict[str, Any]]:
    tables = sorted((tmp_path / "labels/tables/images").rglob("*.parquet"))
    columns = ["key", "shard_id", "index", "status", "reason"]
    return [row for table in tables for row in pq.read_table(table, columns=columns).to_pylist()]


def test_a_job_over_all_tars_finishes_and_accounts_for_every_sample(
    make_spec: Callable[..., JobSpec], tmp_path: Path, shared: Path
) -> None:
    tars = sorted([*(shared / "shards").rglob("*.tar"), *(shared / "shards").rglob("*.tar.gz")])
    source = {"format": "webdataset", "uri": f"{shared}/shards/**/*.tar*"}
    summary = label(make_spec, tmp_path, source)
    assert summary.exit_code == 0
    assert summary.status.num_shards == summary.status.committed_shards == len(tars)
    rows = images(tmp_path)
    statuses = Counter(row["status"] for row in rows)
    assert len(rows) == summary.status.counts.samples
    assert statuses["ok"] == summary.status.counts.ok
    assert statuses["quarantined"] == sum(summary.status.reasons.values())
    places = [(row["shard_id"], row["index"]) for row in rows]
    assert len(places) == len(set(places))
    noted = {
        commit.shard_key
        for commit in Manifest.open(open_store(str(tmp_path / "labels"))).commits()
        if commit.problems
    }
    for damaged in ("truncated_mid_member", "bad_checksum_header", "not_a_tar", "no_end_blocks"):
        assert any(damaged in key for key in noted), damaged


def test_a_job_over_all_difficult_files_gives_each_the_outcome_of_its_manifest(
    make_spec: Callable[..., JobSpec], tmp_path: Path, shared: Path
) -> None:
    manifest = json.loads((shared / "torture" / "manifest.json").read_text())
    expected = {entry["file"]: entry["expect"] for entry in manifest["files"]}
    summary = label(make_spec, tmp_path, {"format": "images", "uri": str(shared / "torture")})
    assert summary.exit_code == 0
    found = {row["key"]: row["status"] for row in images(tmp_path)}
    for name, status in found.items():
        if expected[name] == "decode":
            assert status == "ok", name
        elif expected[name] == "reject":
            assert status == "quarantined", name
    assert len(found) > 100
