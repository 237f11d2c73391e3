"""Tables as Parquet: pinned schemas, encoding, and values back to numpy.

Which rows there are, and what is in them, is left to the stages. Schemas follow from the label
schemas alone, so that every file of a job has the same one, also where a chunk has no rows.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sapiens_batch.errors import ProtocolError, SpecError
from sapiens_batch.records import Array, ColumnField, LabelSchema, Level
from sapiens_batch.sinks import label_schema as schema_json
from sapiens_batch.sinks.base import METADATA_KEY, describe

# Readers hold a row group in memory; 2**31 list elements would also overflow 32-bit offsets.
MAX_GROUP_ROWS = 65_536
MAX_GROUP_BYTES = 256 * 2**20

# float16 stays plain: DuckDB reads BYTE_STREAM_SPLIT for the other widths only.
_SPLIT_TYPES = (pa.float32(), pa.float64())

_IDENTITY = (
    ColumnField("key", "string", (), "", "the sample's own key, as the source has it"),
    ColumnField("shard_id", "string", (), "", "input shard of the sample"),
    ColumnField("index", "int64", (), "", "position of the sample in its shard, from 0"),
)
_IMAGES = (
    *_IDENTITY,
    ColumnField("status", "string", (), "", "ok, empty or quarantined"),
    ColumnField("reason", "string", (), "", "why the sample is quarantined, from the taxonomy"),
    ColumnField("message", "string", (), "", "what a person needs to mend the sample"),
    ColumnField("height", "int32", (), "px", "rows of the source image after orientation"),
    ColumnField("width", "int32", (), "px", "columns of the source image after orientation"),
    ColumnField("orientation", "int8", (), "", "EXIF orientation as stored, 1 to 8"),
    ColumnField("content_sha256", "string", (), "", "digest of the encoded image, hex"),
    ColumnField("decoder", "string", (), "", "library that decoded the image"),
    ColumnField("animated", "bool", (), "", "whether the file holds frames after the labeled one"),
    ColumnField(
        "colour_profile",
        "string",
        (),
        "",
        "embedded ICC profile: none, srgb, converted (to sRGB) or ignored",
    ),
    ColumnField("num_persons", "int32", (), "", "rows of the sample in persons with status ok"),
    ColumnField("persons_truncated", "bool", (), "", "whether there were more than max_persons"),
)
_PERSONS = (
    *_IDENTITY,
    ColumnField("person", "int32", (), "", "position in the list of boxes it came from, from 0"),
    ColumnField("bbox", "float32", (4,), "px", "COCO xywh: left, top, width, height"),
    ColumnField("bbox_score", "float32", (), "probability", "score of the box, where it has one"),
    ColumnField("status", "string", (), "", "ok, or refused: a box that no crop can be cut from"),
    ColumnField(
        "reason",
        "string",
        (),
        "",
        "why the box is refused; person.invented: the whole image, as nobody was found",
    ),
)
_NEVER_NULL = {"key", "shard_id", "index", "status", "num_persons", "person", "bbox"}


def table_schema(
    level: Level, schemas: Sequence[LabelSchema], extra_columns: Sequence[str] = ()
) -> pa.Schema:
    """The pinned schema of a job's `images` or `persons` table.

    Args:
        level: Which table.
        schemas: Label schemas of the job; those of the other level are skipped.
        extra_columns: Source columns that `images` keeps, stored as strings.

    Raises:
        SpecError: Two columns have the same name.
    """
    labels = [one for one in schemas if one.level is level]
    own = own_columns(level, extra_columns)
    columns = [*own, *(column for one in labels for column in one.table_columns)]
    names = [column.name for column in columns]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise SpecError(
            f"source.columns: {', '.join(repeated)} would be twice in table `{level.table}`; "
            "leave them out, these names are taken by the labels"
        )
    fields: list[pa.Field[Any]] = [
        pa.field(column.name, column_type(column), nullable=column.name not in _NEVER_NULL)
        for column in columns
    ]
    content = describe(
        table=level.table,
        columns={one.name: {"unit": one.unit, "description": one.description} for one in columns},
        labels={one.task: schema_json.to_json(one) for one in labels},
    )
    metadata: dict[bytes | str, bytes | str] = {
        METADATA_KEY: json.dumps(content, sort_keys=True, ensure_ascii=False)
    }
    return pa.schema(fields, metadata=metadata)


def column_type(column: ColumnField) -> pa.DataType:
    """Arrow type of a column: a scalar, or nested fixed-size lists, outermost axis first."""
    kind: pa.DataType = (
        pa.string() if column.dtype == "string" else pa.from_numpy_dtype(np.dtype(column.dtype))
    )
    for size in reversed(column.shape):
        # the name that Parquet prescribes, so that a file reads back with this very type
        kind = pa.list_(pa.field("element", kind), size)
    return kind


def column_array(column: ColumnField, values: Array, present: Array | None = None) -> pa.Array[Any]:
    """Values as a column.

    Args:
        column: What the column is.
        values: (n, *shape) in the column's dtype; what stands in absent rows does not matter.
        present: (n,) bool, False where the column is null; None for all present.
    """
    absent = None if present is None else ~np.asarray(present, bool)
    if not column.shape:
        return pa.array(values, type=column_type(column), mask=absent)
    contiguous = np.ascontiguousarray(values, dtype=np.dtype(column.dtype))
    array: pa.Array[Any] = pa.array(contiguous.reshape(-1))
    for size in column.shape[:0:-1]:
        array = pa.FixedSizeListArray.from_arrays(array, size)
    mask = None if absent is None else pa.array(absent)
    whole = pa.FixedSizeListArray.from_arrays(array, column.shape[0], mask=mask)
    return whole.cast(column_type(column))


def column_values(array: pa.Array[Any] | pa.ChunkedArray[Any]) -> tuple[Array, Array]:
    """The inverse of `column_array` for numeric columns.

    Returns:
        (n, *shape) values, zero where the column is null, and (n,) bool: which rows are present.
    """
    whole: Any = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    present = np.asarray(whole.is_valid())
    kept = whole.drop_null()
    shape: list[int] = []
    while pa.types.is_fixed_size_list(kept.type):
        shape.append(kept.type.list_size)
        kept = kept.flatten()
    flat = kept.to_numpy(zero_copy_only=False)
    values = np.zeros((len(whole), *shape), flat.dtype)
    values[present] = flat.reshape(-1, *shape)
    return values, present


def encode(table: pa.Table) -> bytes:
    """A table as a Parquet file; equal tables give equal bytes."""
    buffer = io.BytesIO()
    leaves = list(_leaves(table.schema))
    encodings: dict[str, Any] = {
        "use_dictionary": [path for path, kind in leaves if pa.types.is_string(kind)],
        "use_byte_stream_split": [path for path, kind in leaves if kind in _SPLIT_TYPES],
    }
    pq.write_table(
        table,
        buffer,
        row_group_size=_group_rows(table),
        compression="zstd",
        compression_level=1,
        **encodings,
        write_page_index=True,
        write_page_checksum=True,  # what readers that do not know the commit can check
    )
    return buffer.getvalue()


def decode(data: bytes) -> pa.Table:
    """The inverse of `encode`.

    Raises:
        ProtocolError: The bytes are no Parquet file.
    """
    try:
        return pq.read_table(pa.BufferReader(data), page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise ProtocolError(f"not a whole Parquet file: {error}; run `verify`") from error


def own_columns(level: Level, extra_columns: Sequence[str]) -> list[ColumnField]:
    """Columns of a table that do not come from tasks."""
    if level is Level.PERSON:
        return list(_PERSONS)
    extra = (ColumnField(name, "string", (), "", "kept from the source") for name in extra_columns)
    return [*_IMAGES, *extra]


def _leaves(schema: pa.Schema) -> Iterator[tuple[str, pa.DataType]]:
    """(path in the Parquet file, type) of every leaf column."""
    for field in schema:
        path, kind = field.name, field.type
        while pa.types.is_fixed_size_list(kind):
            path, kind = f"{path}.list.element", kind.value_type
        yield path, kind


def _group_rows(table: pa.Table) -> int:
    bytes_per_row = max(1, table.nbytes // max(1, table.num_rows))
    return max(1, min(MAX_GROUP_ROWS, MAX_GROUP_BYTES // bytes_per_row))
