"""Ranged reads see checked blocks only, and Arrow hands our errors on (I8)."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from sapiens_batch.errors import ProtocolError
from sapiens_batch.protocol.documents import StoredObject
from sapiens_batch.storage import MissingObjectError, Store, open_store
from sapiens_batch.storage.arrow import arrow_filesystem
from sapiens_batch.storage.checked import BLOCK_BYTES, BlockReader
from sapiens_batch.storage.memory import MemoryStore

KEY = "tables/x.parquet"
DATA = random.Random(0).randbytes(3 * BLOCK_BYTES + 1000)
READS: dict[str, Callable[[ds.Dataset], object]] = {
    "table": lambda dataset: dataset.to_table(),
    "filter": lambda dataset: dataset.to_table(columns=["n"], filter=ds.field("n") > 5),
    "batches": lambda dataset: list(dataset.to_batches()),
    "polars": lambda dataset: pl.scan_pyarrow_dataset(dataset).collect(),
}


def stored_bytes(name: str, data: bytes) -> tuple[Store, StoredObject]:
    store = MemoryStore(f"checked-{name}")
    store.delete(KEY)
    store.create(KEY, data)
    return store, StoredObject.describe(KEY, DATA, blocks=True)


def test_any_range_is_what_was_stored() -> None:
    reader = BlockReader(*stored_bytes("any", DATA))
    rng = random.Random(1)
    for _ in range(300):
        start, stop = sorted(rng.sample(range(len(DATA) + 1), 2))
        assert reader.read(start, stop) == DATA[start:stop]


def test_a_changed_bit_is_an_error_in_its_block_only() -> None:
    changed = bytearray(DATA)
    changed[BLOCK_BYTES + 5] ^= 1
    reader = BlockReader(*stored_bytes("changed", bytes(changed)))
    assert reader.read(0, BLOCK_BYTES) == DATA[:BLOCK_BYTES]
    assert reader.read(2 * BLOCK_BYTES, len(DATA)) == DATA[2 * BLOCK_BYTES :]
    message = rf"^{KEY}: bytes 262144 to 524288 have a wrong checksum.*`verify --repair`"
    for start, stop in ((BLOCK_BYTES, BLOCK_BYTES + 1), (0, len(DATA)), (BLOCK_BYTES - 1, 400_000)):
        with pytest.raises(ProtocolError, match=message):
            reader.read(start, stop)


def test_a_block_without_a_checksum_is_not_believed() -> None:
    store, stored = stored_bytes("unknown", DATA)
    with pytest.raises(ProtocolError, match=KEY):
        BlockReader(store, stored.model_copy(update={"block_crc32c": ""})).read(0, 1)


def test_an_object_that_was_cut_is_named_with_its_sizes() -> None:
    reader = BlockReader(*stored_bytes("cut", DATA[:-1]))
    with pytest.raises(ProtocolError, match=f"{KEY}: there are 787431 bytes of 787432"):
        reader.read(len(DATA) - 10, len(DATA))


def dataset(folder: Path) -> ds.Dataset:
    table = pa.table({"n": range(1000), "text": [f"text {n}" for n in range(1000)]})
    (folder / "tables").mkdir()
    pq.write_table(table, folder / KEY)
    stored = StoredObject.describe(KEY, (folder / KEY).read_bytes(), blocks=True)
    return ds.FileSystemDataset.from_paths(
        [KEY],
        schema=table.schema,
        format=ds.ParquetFileFormat(),
        filesystem=arrow_filesystem(open_store(str(folder)), {KEY: stored}.get),
    )


@pytest.mark.parametrize("how", READS)
@pytest.mark.parametrize("place", ["data", "footer"])
def test_readers_of_a_dataset_get_the_error_that_names_the_object(
    how: str, place: str, tmp_path: Path
) -> None:
    found = dataset(tmp_path)
    READS[how](found)
    data = bytearray((tmp_path / KEY).read_bytes())
    data[100 if place == "data" else -20] ^= 1
    (tmp_path / KEY).write_bytes(data)
    with pytest.raises(ProtocolError, match=rf"^{KEY}: .*verify --repair"):
        READS[how](found)
    with pytest.raises(ProtocolError, match=rf"^{KEY}: .*verify --repair"):
        READS[how](pickle.loads(pickle.dumps(found)))
    (tmp_path / KEY).unlink()
    with pytest.raises(MissingObjectError, match=KEY):
        READS[how](found)


def test_duckdb_gives_no_value_of_a_damaged_object(tmp_path: Path) -> None:
    connection = duckdb.connect()
    connection.register("found", dataset(tmp_path))
    query = "select sum(n), min(text) from found"
    assert connection.sql(query).fetchall() == [(499500, "text 0")]
    data = bytearray((tmp_path / KEY).read_bytes())
    data[100] ^= 1
    (tmp_path / KEY).write_bytes(data)
    with pytest.raises(duckdb.InvalidInputException, match=rf"{KEY}: .*verify --repair"):
        connection.sql(query).fetchall()
