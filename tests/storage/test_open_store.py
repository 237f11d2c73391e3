"""Which backend an address opens, and Arrow on top of it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from sapiens_batch.storage import MissingObjectError, Store, open_store
from sapiens_batch.storage.arrow import arrow_filesystem
from sapiens_batch.storage.local import LocalStore
from sapiens_batch.storage.memory import MemoryStore


def test_the_address_decides_the_backend(tmp_path: Path) -> None:
    assert isinstance(open_store("memory://x"), MemoryStore)
    assert open_store(str(tmp_path)).uri == str(tmp_path)
    assert open_store(f"file://{tmp_path}").uri == str(tmp_path)
    assert open_store("file:///a%20b").uri == "/a b"


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("labels/run")
    monkeypatch.chdir("/")
    assert store.uri == str(tmp_path / "labels" / "run")


@pytest.mark.parametrize("backend", ["memory", "local"])
def test_arrow_reads_a_parquet_file_through_any_store(backend: str, tmp_path: Path) -> None:
    store: Store = MemoryStore("arrow-test") if backend == "memory" else LocalStore(tmp_path)
    table = pa.table({"a": list(range(1000))})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    store.create("t/é.parquet", sink.getvalue().to_pybytes())
    dataset = ds.FileSystemDataset.from_paths(
        ["t/é.parquet"],
        schema=table.schema,
        format=ds.ParquetFileFormat(),
        filesystem=arrow_filesystem(store),
    )
    assert dataset.to_table(filter=ds.field("a") > 997).to_pydict() == {"a": [998, 999]}


def test_arrow_is_told_which_object_is_missing() -> None:
    filesystem = arrow_filesystem(MemoryStore("arrow-missing"))
    with pytest.raises(MissingObjectError, match=r"memory://arrow-missing/gone"):
        filesystem.open_input_file("gone")
    assert filesystem.get_file_info("gone").type.name == "NotFound"
