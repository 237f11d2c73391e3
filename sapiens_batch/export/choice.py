"""Which samples are exported: a filter on `images`, a selection file, or all that have labels.

Quarantined samples have no labels and are never exported. Making selections is left to `curate`;
its files, and any list of keys or uids that a source accepts, are read here.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from sapiens_batch.errors import InputError
from sapiens_batch.labelset import LabelSet
from sapiens_batch.labelset.filters import Filter, as_expression
from sapiens_batch.records import Array, Status
from sapiens_batch.sources.selection import Selection, load_selection
from sapiens_batch.spec.job import SourceSpec
from sapiens_batch.storage import Store, open_store
from sapiens_batch.storage.addresses import absolute_uri, parent_uri
from sapiens_batch.storage.arrow import arrow_filesystem

_BLOCK_BYTES = 16 * 2**20
_PLACE = {"shard_id", "index"}
_LABELED = ds.field("status") != str(Status.QUARANTINED)


class SelectionFile:
    """A list of samples in a Parquet or .npy file.

    Raises:
        InputError: It is no selection.
        StorageError: It cannot be read.
    """

    def __init__(self, uri: str, storage_options: dict[str, Any] | None = None) -> None:
        uri = absolute_uri(uri)
        folder, name = parent_uri(uri), uri.rpartition("/")[2]
        store = open_store(folder, storage_options)
        self.uri = uri
        self.sha256 = _digest(store, name)
        self._places = _places(store, name) if name.lower().endswith(".parquet") else None
        self._keys: Selection | None = None
        if self._places is None:
            # the one reader of key lists belongs to the sources, which take it in a spec
            spec = SourceSpec(
                format="webdataset", uri=uri, select=uri, storage_options=storage_options or {}
            )
            self._keys = load_selection(spec)

    def takes(self, shard_id: str, table: pa.Table) -> Array:
        """(n,) bool: which rows of one shard are selected, by place where the file has it."""
        if self._places is not None:
            mine = ds.field("shard_id") == shard_id
            try:
                wanted = self._places.to_table(columns=["index"], filter=mine)
            except (pa.ArrowException, OSError) as error:
                raise InputError(f"selection {self.uri} is damaged: {error}") from error
            return np.isin(table["index"].to_numpy(), wanted["index"].to_numpy())
        assert self._keys is not None, "a selection is by place or by key"
        keys = self._keys
        column = table[keys.by if keys.by in table.column_names else "key"]
        return np.array([value is not None and value in keys for value in column.to_pylist()], bool)


@dataclass(frozen=True, slots=True)
class Choice:
    """What to export: rows of `images` that pass a filter and are in a selection."""

    where: Filter | None = None
    selection: SelectionFile | None = None

    def indices(self, labels: LabelSet, shard_id: str) -> Array:
        """(n,) int64 indices of the chosen samples of one shard, ascending.

        Raises:
            InputError: The filter does not fit the table.
        """
        schema = labels.images.schema
        expression = as_expression(self.where, schema)
        wanted = _LABELED if expression is None else _LABELED & expression
        columns: list[str] = [name for name in ("index", "key", "uid") if name in schema.names]
        table = labels.shard_rows(shard_id, wanted=wanted, columns=columns)
        indices: Array = table["index"].to_numpy()
        if self.selection is not None and len(indices):
            indices = indices[self.selection.takes(shard_id, table)]
        return indices


def _places(store: Store, name: str) -> ds.Dataset | None:
    """The file as a dataset if it names places in shards."""
    try:
        found = ds.dataset(name, format="parquet", filesystem=arrow_filesystem(store))
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{store.uri}/{name} is no readable Parquet file: {error}") from error
    return found if set(found.schema.names) >= _PLACE else None


def _digest(store: Store, name: str) -> str:
    size = store.size(name)
    if size is None:
        raise InputError(f"there is no selection file {store.uri}/{name}")
    digest = hashlib.sha256()
    for start in range(0, size, _BLOCK_BYTES):
        digest.update(store.read_range(name, start, min(size, start + _BLOCK_BYTES)))
    return digest.hexdigest()
