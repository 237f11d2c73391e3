"""Stream the rows of a table file in small batches: Parquet, Arrow IPC, CSV.

Memory holds one batch of the columns asked for, not a row group. Damage gives a `Lost` range where
it is known which rows are gone. What the columns mean is left to `sources.columns` and
`sources.rows`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

from sapiens_batch.errors import InputError
from sapiens_batch.storage.streams import InputStream

BATCH_ROWS = 32
"""Rows with images decoded at once: 32 camera images fit in a small worker."""

_READ_BUFFER_BYTES = 4 << 20
_CSV_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class TableBatch:
    """Up to `BATCH_ROWS` consecutive rows, of which `first_row` is the number in the file."""

    first_row: int
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Lost:
    """Rows `[start, stop)` that cannot be read; an empty range where it is unknown how many."""

    start: int
    stop: int
    message: str


class DamagedTableError(InputError):
    """The file is no table of its kind, or its beginning or end is damaged."""


class Table(ABC):
    """One open table file.

    Attributes:
        schema: Its columns.
    """

    schema: pa.Schema

    @abstractmethod
    def batches(
        self, columns: Sequence[str], start: int = 0, stop: int | None = None
    ) -> Iterator[TableBatch | Lost]:
        """Rows `[start, stop)` in order, these columns of them.

        Raises:
            OSError: The store failed in a way that a retry may mend.
        """

    @abstractmethod
    def num_rows(self) -> int:
        """Rows of the file; may have to read it."""

    def paths_are_unique(self, name: str, field: str | None) -> bool:
        """Whether every row has a text of its own in a column, or in a field of it."""
        return False


def open_table(stream: InputStream, name: str) -> Table:
    """Open a table by the suffix of its name: .csv, .tsv, .arrow, everything else is Parquet.

    Raises:
        DamagedTableError: The content is not what the suffix says.
        OSError: The store failed in a way that a retry may mend.
    """
    suffix = name.lower().rpartition(".")[2]
    try:
        if suffix in ("csv", "tsv"):
            return CsvTable(stream, "\t" if suffix == "tsv" else ",")
        return ArrowTable(stream) if suffix == "arrow" else ParquetTable(stream)
    except (pa.ArrowException, OSError) as error:
        stream.raise_failure()
        raise DamagedTableError(f"{name}: not a readable table: {error}") from error


class ParquetTable(Table):
    """A Parquet file; damage costs the rest of its row group."""

    def __init__(self, stream: InputStream) -> None:
        self._stream = stream
        self._file = pq.ParquetFile(
            cast("IO[bytes]", stream), buffer_size=_READ_BUFFER_BYTES, pre_buffer=False
        )
        self.schema = self._file.schema_arrow

    def num_rows(self) -> int:
        """Rows of the file, from its footer."""
        return self._file.metadata.num_rows

    def batches(
        self, columns: Sequence[str], start: int = 0, stop: int | None = None
    ) -> Iterator[TableBatch | Lost]:
        """Rows in order; see `Table.batches`."""
        first = 0
        for group in range(self._file.num_row_groups):
            after = first + self._file.metadata.row_group(group).num_rows
            if start < after and (stop is None or first < stop):
                yield from self._group_batches(columns, group, first, range(start, stop or after))
            first = after

    def _group_batches(
        self, columns: Sequence[str], group: int, first: int, wanted: range
    ) -> Iterator[TableBatch | Lost]:
        row, last = first, first + self._file.metadata.row_group(group).num_rows
        try:
            for batch in self._file.iter_batches(
                BATCH_ROWS, row_groups=[group], columns=list(columns)
            ):
                yield from _pieces(batch, row, wanted)
                row += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            self._stream.raise_failure()
            start, stop = max(row, wanted.start), min(last, wanted.stop)
            yield Lost(start, stop, f"row group {group} is damaged: {error}")

    def paths_are_unique(self, name: str, field: str | None) -> bool:
        """Reads the one column; see `Table.paths_are_unique`."""
        try:
            column = self._file.read(columns=[f"{name}.{field}" if field else name]).column(0)
        except (pa.ArrowException, OSError, IndexError):
            self._stream.raise_failure()
            return False
        if field:
            column = pc.struct_field(column, field)
        distinct = pc.count_distinct(column, mode="all").as_py()
        return column.null_count == 0 and bool(distinct == len(column))


class ArrowTable(Table):
    """An Arrow IPC stream or file, as `datasets` writes; damage costs all that follows it."""

    def __init__(self, stream: InputStream) -> None:
        self._stream = stream
        self._is_file = stream.read(6) == b"ARROW1"
        self.schema, _ = self._open()

    def num_rows(self) -> int:
        """Rows of the file, by reading it."""
        return sum(batch.num_rows for batch in self._open()[1])

    def batches(
        self, columns: Sequence[str], start: int = 0, stop: int | None = None
    ) -> Iterator[TableBatch | Lost]:
        """Rows in order; see `Table.batches`."""
        wanted = list(columns)

        def read() -> Iterator[pa.RecordBatch]:
            return (batch.select(wanted) for batch in self._open()[1])

        return _streamed(self._stream, read, start, stop)

    def _open(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        self._stream.seek(0)
        source = pa.PythonFile(self._stream, "r")
        if not self._is_file:
            reader = pa.ipc.open_stream(source)
            return reader.schema, iter(reader)
        file = pa.ipc.open_file(source)
        return file.schema, map(file.get_batch, range(file.num_record_batches))


class CsvTable(Table):
    """Comma- or tab-separated text with a header line; every column is text."""

    def __init__(self, stream: InputStream, delimiter: str) -> None:
        self._stream = stream
        # addresses may be quoted and then hold line ends
        self._parse = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        names = self._open(csv.ConvertOptions()).schema.names
        self.schema = pa.schema([(name, pa.string()) for name in names])

    def num_rows(self) -> int:
        """Rows of the file, by reading it.

        Raises:
            DamagedTableError: A row has another number of columns than the header.
        """
        try:
            options = csv.ConvertOptions(include_columns=self.schema.names[:1])
            return sum(batch.num_rows for batch in self._open(options))
        except pa.ArrowException as error:
            self._stream.raise_failure()
            raise DamagedTableError(f"not readable as CSV: {error}") from error

    def batches(
        self, columns: Sequence[str], start: int = 0, stop: int | None = None
    ) -> Iterator[TableBatch | Lost]:
        """Rows in order, from the beginning of the text; see `Table.batches`."""
        types = dict.fromkeys(columns, pa.string())
        options = csv.ConvertOptions(column_types=types, include_columns=list(columns))
        return _streamed(self._stream, lambda: self._open(options), start, stop)

    def _open(self, options: csv.ConvertOptions) -> csv.CSVStreamingReader:
        self._stream.seek(0)
        return csv.open_csv(
            cast("IO[bytes]", pa.PythonFile(self._stream, "r")),
            read_options=csv.ReadOptions(block_size=_CSV_BLOCK_BYTES, use_threads=False),
            parse_options=self._parse,
            convert_options=options,
        )


def _streamed(
    stream: InputStream,
    read: Callable[[], Iterable[pa.RecordBatch]],
    start: int,
    stop: int | None,
) -> Iterator[TableBatch | Lost]:
    """Rows `[start, stop)` of what can only be read from the beginning; damage costs the rest."""
    row = 0
    try:
        for batch in read():
            after = row + batch.num_rows
            yield from _pieces(batch, row, range(start, after if stop is None else stop))
            row = after
            if stop is not None and row >= stop:
                return
    except (pa.ArrowException, OSError) as error:
        stream.raise_failure()
        first, lost = max(row, start), f"damaged after row {row}, the rest was not read: {error}"
        yield Lost(first, max(first, stop or first), lost)


def _pieces(batch: pa.RecordBatch, first: int, wanted: range) -> Iterator[TableBatch]:
    """The wanted rows of a batch that begins at row `first`, cut into small batches."""
    start, stop = max(first, wanted.start), min(first + batch.num_rows, wanted.stop)
    for row in range(start, stop, BATCH_ROWS):
        yield TableBatch(row, batch.slice(row - first, min(BATCH_ROWS, stop - row)))
