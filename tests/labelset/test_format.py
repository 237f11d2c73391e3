"""A second reader, written from docs/format.md with json, pyarrow and a codec alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import numcodecs
import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr

from sapiens_batch.storage.local import LocalStore
from tests.labelset.built_job import LABELED, SHARDS, normal_row, seg_row, write_job


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    write_job(LocalStore(folder))
    return folder


@pytest.fixture(scope="module")
def commits(root: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_bytes()) for path in sorted(root.glob("commits/??/*.json"))]


def stored_objects(commit: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from commit["tables"].values()
    for array in commit["arrays"].values():
        yield array["metadata"]
        yield from array["chunks"]


def test_every_named_object_has_its_size_and_digest(
    root: Path, commits: list[dict[str, Any]]
) -> None:
    named = [one for commit in commits for one in stored_objects(commit)]
    assert len(named) == 2 * (2 + 2 * 3)
    for one in named:
        data = (root / one["key"]).read_bytes()
        assert len(data) == one["size_bytes"]
        assert hashlib.sha256(data).hexdigest() == one["sha256"]


def test_counts_chunks_and_rows_agree(root: Path, commits: list[dict[str, Any]]) -> None:
    for commit in commits:
        counts = commit["counts"]
        assert counts == {"ok": 4, "empty": 1, "quarantined": 1, "persons": 5}
        assert commit["reasons"] == {"decode.truncated": 1}
        assert [chunk[:2] for chunk in commit["chunks"]] == [[0, 4], [4, 6]]
        assert pq.read_metadata(root / commit["tables"]["images"]["key"]).num_rows == 6
        assert pq.read_metadata(root / commit["tables"]["persons"]["key"]).num_rows == 5


def test_tables_lead_to_rows_of_arrays_that_zarr_opens(
    root: Path, commits: list[dict[str, Any]]
) -> None:
    for number, commit in enumerate(commits):
        table = pq.read_table(root / commit["tables"]["images"]["key"])
        seg = zarr.open_array(root / commit["arrays"]["seg"]["root"], mode="r")
        normal = zarr.open_array(root / commit["arrays"]["normal"]["root"], mode="r")
        assert seg.attrs["sapiens_batch"]["metadata"]["vocabulary"] == ["Background", "Skin"]
        for index, row in enumerate(table["seg_row"].to_pylist()):
            assert row == (index if index in LABELED else None)
            expected = seg_row(number, index) if row is not None else np.full((8, 6), 255)
            np.testing.assert_array_equal(seg[index], expected)
            if row is not None:
                np.testing.assert_array_equal(normal[index], normal_row(number, index))


def test_one_row_is_read_by_hand(root: Path, commits: list[dict[str, Any]]) -> None:
    array = commits[1]["arrays"]["normal"]
    chunk, position = divmod(5, array["shard_rows"])
    data = (root / f"{array['root']}/c/{chunk}/0/0/0").read_bytes()
    tail = data[-(16 * array["shard_rows"] + 4) :]
    assert google_crc32c.value(tail[:-4]) == int.from_bytes(tail[-4:], "little")
    offset, size = np.frombuffer(tail[:-4], "<u8").reshape(-1, 2)[position]
    raw = numcodecs.Blosc().decode(data[int(offset) : int(offset + size)])
    row = np.frombuffer(raw, "<f2").reshape(array["shape"][1:])
    np.testing.assert_array_equal(row, normal_row(1, 5))


def test_the_third_shard_is_an_orphan(root: Path, commits: list[dict[str, Any]]) -> None:
    orphan = SHARDS[2].shard_id
    assert list(root.glob(f"tables/images/*/{orphan}-*.parquet"))
    assert orphan not in {commit["shard_id"] for commit in commits}
