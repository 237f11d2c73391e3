"""The tables of one committed shard.

What the rows mean is left to the caller. Only what the commit names is read (I3), and all of it is
checked (I8).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.dataset as ds

from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.documents import StoredObject
from sapiens_batch.records import Level
from sapiens_batch.sinks import parquet
from sapiens_batch.storage import Store
from sapiens_batch.storage.arrow import arrow_filesystem


def read_table(store: Store, commit: Commit, level: Level) -> pa.Table | None:
    """All rows of a table, or None where the shard has none.

    Raises:
        MissingObjectError: The object is gone.
        ProtocolError: It is damaged.
    """
    stored = commit.tables.get(level.table)
    return None if stored is None else parquet.decode(stored.read(store))


def select_rows(
    store: Store,
    stored: StoredObject,
    *,
    schema: pa.Schema | None = None,
    wanted: ds.Expression | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Some rows and columns of a table, in order; no more of it is read than they need.

    Raises:
        MissingObjectError: The object is gone.
        ProtocolError: It is damaged.
    """
    filesystem = arrow_filesystem(store, {stored.key: stored}.get)
    fragment = ds.ParquetFileFormat().make_fragment(stored.key, filesystem=filesystem)
    names = None if columns is None else list(columns)
    return fragment.to_table(schema=schema, filter=wanted, columns=names)
