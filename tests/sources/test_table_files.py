"""Streaming table files: ranges, small batches, damage."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapiens_batch.sources.table_files import (
    BATCH_ROWS,
    DamagedTableError,
    Lost,
    Table,
    TableBatch,
    open_table,
)
from sapiens_batch.storage.streams import InputStream

NUM_ROWS = 100
TABLE = pa.table({"n": [str(row) for row in range(NUM_ROWS)], "other": ["x"] * NUM_ROWS})


def parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, row_group_size=37)
    return buffer.getvalue()


def arrow_stream(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table, max_chunksize=37)
    return buffer.getvalue()


def arrow_file(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    with pa.ipc.new_file(buffer, table.schema) as writer:
        writer.write_table(table, max_chunksize=37)
    return buffer.getvalue()


def comma(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pyarrow.csv.write_csv(table, buffer)
    return buffer.getvalue()


KINDS: list[tuple[str, Callable[[pa.Table], bytes]]] = [
    ("t.parquet", parquet),
    ("t.arrow", arrow_stream),
    ("t.arrow", arrow_file),
    ("t.csv", comma),
]


def opened(name: str, content: bytes) -> Table:
    return open_table(InputStream(io.BytesIO(content), name), name)


@settings(max_examples=40, deadline=None)
@given(kind=st.sampled_from(KINDS), start=st.integers(0, 110), length=st.integers(1, 110))
def test_a_range_gives_its_rows_with_their_numbers_in_small_batches(
    kind: tuple[str, Callable[[pa.Table], bytes]], start: int, length: int
) -> None:
    name, write = kind
    table = opened(name, write(TABLE))
    assert table.num_rows() == NUM_ROWS
    rows = []
    for item in table.batches(["n"], start, start + length):
        assert isinstance(item, TableBatch)
        assert item.batch.num_rows <= BATCH_ROWS
        assert item.batch.schema.names == ["n"]
        values = item.batch.column("n").to_pylist()
        assert values == [str(item.first_row + offset) for offset in range(len(values))]
        rows += values
    assert rows == [str(row) for row in range(start, min(start + length, NUM_ROWS))]


@pytest.mark.parametrize(("name", "write"), KINDS)
def test_without_a_range_all_rows_come(name: str, write: Callable[[pa.Table], bytes]) -> None:
    batches = list(opened(name, write(TABLE)).batches(["n", "other"]))
    assert sum(item.batch.num_rows for item in batches if isinstance(item, TableBatch)) == 100


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow", "t.csv"])
def test_what_is_no_table_is_told_with_its_name(name: str) -> None:
    with pytest.raises(DamagedTableError, match=f"{name}: not a readable table"):
        opened(name, b"")


def test_a_cut_arrow_stream_gives_what_came_before_and_says_where_it_stops() -> None:
    content = arrow_stream(TABLE)
    *batches, lost = opened("t.arrow", content[: len(content) * 2 // 3]).batches(["n"])
    assert isinstance(lost, Lost)
    assert (lost.start, lost.stop) == (37, 37)
    assert "damaged after row 37" in lost.message
    assert sum(item.batch.num_rows for item in batches if isinstance(item, TableBatch)) == 37


class ThrottledFile(io.BytesIO):
    """Fails as a store does, not as damaged bytes do."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise OSError("throttled")


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow", "t.csv"])
def test_a_failing_store_is_raised_and_never_taken_for_damage(name: str) -> None:
    with pytest.raises(OSError, match="throttled"):
        open_table(InputStream(ThrottledFile(b"x" * 1000), name), name)


def test_quoted_line_ends_belong_to_the_value(tmp_path: Path) -> None:
    table = opened("t.csv", b'a,b\n"1\n2",x\n3,y\n')
    (item,) = table.batches(["a"])
    assert isinstance(item, TableBatch)
    assert item.batch.column("a").to_pylist() == ["1\n2", "3"]
