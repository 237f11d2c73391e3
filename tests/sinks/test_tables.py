"""Rows of chunks become the tables of a shard: in order, with the roots of their arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sapiens_batch.errors import ProtocolError
from sapiens_batch.records import Level
from sapiens_batch.sinks import parquet
from sapiens_batch.sinks.tables import (
    ParquetTables,
    SealedTable,
    decode_rows,
    encode_rows,
    row_schema,
)
from tests.sinks.test_parquet import ALL, IMAGES, PERSONS, images, persons

TABLES = ParquetTables(ALL, ["caption"])


def rows(table: pa.Table) -> bytes:
    """A table as the rows of a chunk."""
    columns = row_schema(table.schema, ALL)
    return encode_rows(table.select(columns.names).cast(columns))


def sealed(found: SealedTable | None) -> pa.Table:
    assert found is not None
    table = parquet.decode(found.data)
    assert table.num_rows == found.rows
    return table


def with_rows(table: pa.Table, task: str, numbers: list[int | None]) -> pa.Table:
    field = table.schema.get_field_index(f"{task}_row")
    return table.set_column(field, table.schema.field(field), pa.array(numbers, pa.int64()))


def test_rows_come_back_as_they_were() -> None:
    columns = row_schema(PERSONS, ALL)
    table = persons([0, 0, 2]).select(columns.names).cast(columns)
    assert decode_rows(encode_rows(table), columns).equals(table)
    assert encode_rows(table) == encode_rows(table)


def test_rows_carry_neither_roots_nor_the_metadata_of_the_job() -> None:
    columns = row_schema(IMAGES, ALL)
    assert set(IMAGES.names) - set(columns.names) == {"seg_array", "normal_array"}
    assert columns.metadata is None


def test_chunks_are_put_together_in_the_order_of_samples() -> None:
    sections = [rows(persons([4, 4, 5], [1, 0, 0])), rows(persons([])), rows(persons([0, 1]))]
    merged = sealed(TABLES.seal(Level.PERSON, sections, {}))
    assert merged["index"].to_pylist() == [0, 1, 4, 4, 5]
    assert merged["person"].to_pylist() == [0, 0, 0, 1, 0]
    assert merged["keypoints"].is_null().to_pylist() == [False, True, False, False, False]
    assert merged.schema.equals(PERSONS, check_metadata=True)


def test_rows_that_point_into_an_array_name_its_root() -> None:
    section = rows(with_rows(images([0, 1, 2]), "seg", [0, None, 2]))
    table = sealed(TABLES.seal(Level.IMAGE, [section], {"seg": "arrays/seg/x.zarr"}))
    assert table["seg_array"].to_pylist() == ["arrays/seg/x.zarr", None, "arrays/seg/x.zarr"]
    assert table["normal_array"].to_pylist() == [None] * 3


def test_samples_that_are_kept_come_from_the_table_before_with_the_new_root() -> None:
    before = TABLES.seal(
        Level.IMAGE, [rows(with_rows(images([0, 1, 2, 3]), "seg", [0, 1, 2, 3]))], {"seg": "old"}
    )
    assert before is not None
    again = rows(with_rows(images([1, 2]), "seg", [None, 2]))
    found = TABLES.seal(Level.IMAGE, [again], {"seg": "new"}, base=before.data, kept={0, 3})
    table = sealed(found)
    assert table["index"].to_pylist() == [0, 1, 2, 3]
    assert table["seg_array"].to_pylist() == ["new", None, "new", "new"]


def test_what_the_rows_say_is_counted() -> None:
    table = images([0, 1, 2])
    changes = {
        "status": ["ok", "quarantined", "quarantined"],
        "reason": [None, "decode.x", "decode.x"],
    }
    for name, values in changes.items():
        position = table.schema.get_field_index(name)
        table = table.set_column(position, table.schema.field(position), pa.array(values))
    found = TABLES.seal(Level.IMAGE, [rows(table)], {})
    assert found is not None
    assert (found.statuses, found.reasons) == ({"ok": 1, "quarantined": 2}, {"decode.x": 2})


def test_only_images_may_have_no_rows() -> None:
    assert TABLES.seal(Level.PERSON, [rows(persons([]))], {}) is None
    assert sealed(TABLES.seal(Level.IMAGE, [], {})).num_rows == 0


def test_the_same_rows_give_the_same_bytes() -> None:
    sections = [rows(images([0, 1])), rows(images([2]))]
    first, again = (TABLES.seal(Level.IMAGE, sections, {}) for _ in range(2))
    assert first == again
    assert first is not None
    assert first.data == parquet.encode(images([0, 1, 2]))


def test_rows_of_another_job_are_refused() -> None:
    foreign = parquet.table_schema(Level.IMAGE, ALL[:1], ["caption"])
    with pytest.raises(ProtocolError, match="not the job's"):
        TABLES.seal(Level.IMAGE, [encode_rows(pa.Table.from_batches([], schema=foreign))], {})


@pytest.mark.parametrize("length", [0, 3, 200, -20])
def test_torn_rows_are_refused(length: int) -> None:
    with pytest.raises(ProtocolError, match="not the rows of a chunk"):
        decode_rows(rows(images(list(np.arange(5))))[:length])
