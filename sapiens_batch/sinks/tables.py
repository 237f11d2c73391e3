"""The tables of one shard, from the rows of its chunks.

Rows of a chunk are one Arrow IPC stream in a zstd frame: quick to write and to read, and never seen
by readers of labels. They have the table's columns without the roots of arrays, which are known
only when the shard is sealed, and without the metadata of the schema, which is the job's. Tables
are Parquet, rows ordered by index, then person. That bytes are what they were is for the caller to
check.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sapiens_batch.errors import ProtocolError
from sapiens_batch.records import LabelSchema, Level, Status
from sapiens_batch.sinks import parquet

_CODEC: Final = "zstd"
"""Of the whole stream: buffer by buffer costs 15 times the CPU for a chunk, and twice the bytes."""
_READ: Final = pa.ipc.IpcReadOptions(use_threads=False)


@dataclass(frozen=True, slots=True)
class SealedTable:
    """A table of a shard.

    Attributes:
        data: The bytes of its object.
        rows: How many rows.
        statuses: Rows by status.
        reasons: Quarantined rows by reason, sorted.
    """

    data: bytes
    rows: int
    statuses: Mapping[str, int]
    reasons: Mapping[str, int]


class ParquetTables:
    """How a job's rows become tables. Picklable.

    Args:
        schemas: Label schemas of the job.
        extra_columns: Source columns that `images` keeps.
    """

    def __init__(self, schemas: Sequence[LabelSchema], extra_columns: Sequence[str] = ()) -> None:
        self._with_array = [one for one in schemas if one.array is not None]
        self._schemas = {
            level: parquet.table_schema(level, schemas, extra_columns) for level in Level
        }

    def seal(
        self,
        level: Level,
        sections: Sequence[bytes],
        roots: Mapping[str, str],
        *,
        base: bytes | None = None,
        kept: Collection[int] = (),
    ) -> SealedTable | None:
        """See `protocol.seal.TableFormat.seal`.

        Raises:
            ProtocolError: Rows are not of this job's schema, or the base is no table.
        """
        schema = self._schemas[level]
        columns = row_schema(schema, self._with_array)
        found = [decode_rows(section, columns) for section in sections]
        if base is not None:
            before = parquet.decode(base)
            rows = before.filter(pc.is_in(before["index"], pa.array(list(kept), pa.int64())))
            found.append(rows.select(columns.names).cast(columns))
        table = _ordered(pa.concat_tables([columns.empty_table(), *found]))
        if table.num_rows == 0 and level is not Level.IMAGE:
            return None
        whole = self._with_roots(table, schema, roots)
        statuses, reasons = count_statuses(whole)
        return SealedTable(parquet.encode(whole), whole.num_rows, statuses, reasons)

    def _with_roots(self, table: pa.Table, schema: pa.Schema, roots: Mapping[str, str]) -> pa.Table:
        values: dict[str, Any] = {name: table[name] for name in table.column_names}
        for one in self._with_array:
            if f"{one.task}_row" in values:
                values[f"{one.task}_array"] = pc.if_else(
                    pc.is_valid(table[f"{one.task}_row"]),
                    pa.scalar(roots.get(one.task), pa.string()),
                    pa.scalar(None, pa.string()),
                )
        return pa.Table.from_arrays([values[name] for name in schema.names], schema=schema)


def row_schema(schema: pa.Schema, labels: Iterable[LabelSchema]) -> pa.Schema:
    """The columns of a table's rows before their shard is sealed."""
    roots = {f"{one.task}_array" for one in labels if one.array is not None}
    return pa.schema([field for field in schema if field.name not in roots])


def encode_rows(table: pa.Table) -> bytes:
    """Rows as bytes."""
    sink = pa.BufferOutputStream()
    with (
        pa.CompressedOutputStream(sink, _CODEC) as packed,
        pa.ipc.new_stream(packed, table.schema) as writer,
    ):
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def decode_rows(data: bytes, schema: pa.Schema | None = None) -> pa.Table:
    """The inverse of `encode_rows`.

    Raises:
        ProtocolError: The bytes are no rows, or of another schema than the given one.
    """
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), _CODEC) as packed:
            table: pa.Table = pa.ipc.open_stream(packed, options=_READ).read_all()
    except (pa.ArrowException, OSError) as error:
        raise ProtocolError(f"not the rows of a chunk: {error}; run `verify`") from error
    if schema is not None and not table.schema.equals(schema):
        raise ProtocolError(f"rows have columns {table.schema.names}, not the job's; run `verify`")
    return table


def count_statuses(table: pa.Table) -> tuple[dict[str, int], dict[str, int]]:
    """Rows by status, and the quarantined ones by reason, sorted."""
    statuses = Counter(table["status"].to_pylist())
    reasons: Counter[Any] = Counter()
    if statuses[str(Status.QUARANTINED)]:
        quarantined = pc.equal(table["status"], pa.scalar(str(Status.QUARANTINED)))
        reasons.update(table["reason"].filter(quarantined).to_pylist())
    return {str(one): number for one, number in statuses.items()}, dict(sorted(reasons.items()))


def _ordered(table: pa.Table) -> pa.Table:
    names = [name for name in ("index", "person") if name in table.schema.names]
    rank = np.lexsort([table[name].to_numpy() for name in reversed(names)])
    in_order = bool((rank == np.arange(table.num_rows)).all())
    return table if in_order else table.sort_by([(name, "ascending") for name in names])
