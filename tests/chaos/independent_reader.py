"""A reader of job directories written from docs/format.md with pyarrow and zarr, no code of ours.

It returns every visible sample once, after checking that table and array rows of it agree.
"""

from __future__ import annotations

import io
import json
from typing import Any

import fsspec
import numpy as np
import pyarrow.parquet as pq
import zarr

Row = dict[str, Any]


def read_job(uri: str, options: dict[str, Any]) -> list[Row]:
    """The rows of `images` of all visible shards of a job of `tests.synthetic` labels.

    Raises:
        AssertionError: A sample is there twice, an index is missing, or labels are torn.
    """
    system, root = fsspec.url_to_fs(uri, **options)
    system.invalidate_cache()
    newest: dict[str, str] = {}
    for path in sorted(system.find(f"{root}/commits")):
        newest[path.rsplit("/", 1)[1].split(".")[0]] = path
    rows: list[Row] = []
    for path in newest.values():
        commit = json.loads(system.cat_file(path))
        shard = _table(system, root, commit, "images")
        assert [row["index"] for row in shard] == list(range(commit["num_samples"])), path
        _check_arrays(uri, options, commit, shard)
        _check_persons(shard, _table(system, root, commit, "persons"))
        rows += shard
    keys = [row["key"] for row in rows]
    assert len(keys) == len(set(keys)), "a sample is visible twice"
    return rows


def _table(system: Any, root: str, commit: Row, name: str) -> list[Row]:
    if name not in commit["tables"]:
        return []
    data = system.cat_file(f"{root}/{commit['tables'][name]['key']}")
    assert len(data) == commit["tables"][name]["size_bytes"]
    return pq.read_table(io.BytesIO(data)).to_pylist()


def _check_arrays(uri: str, options: dict[str, Any], commit: Row, rows: list[Row]) -> None:
    """Each labeled row of the class map holds the number that the table's column holds."""
    if "seg" not in commit["arrays"]:
        return
    store = zarr.storage.FsspecStore.from_url(
        f"{uri}/{commit['arrays']['seg']['root']}", storage_options=options, read_only=True
    )
    array = zarr.open_array(store, mode="r")
    for row in rows:
        if row["seg_row"] is not None:
            values = np.unique(np.asarray(array[row["seg_row"]]))
            assert values.tolist() == [row["seg_class_pixels"][0]], f"{row['key']} is torn"


def _check_persons(images: list[Row], persons: list[Row]) -> None:
    counted: dict[int, int] = {}
    for person in persons:
        counted[person["index"]] = counted.get(person["index"], 0) + 1
    assert counted == {row["index"]: row["num_persons"] for row in images if row["num_persons"]}
