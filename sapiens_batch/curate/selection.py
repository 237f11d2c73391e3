"""The selection file: which samples, and how they were chosen.

Parquet with a row for each sample, which `source.select` and the exporters read by `key`; the
footer holds the recipe and what it was applied to. The same recipe on the same labels gives the
same bytes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sapiens_batch.errors import InputError, ProtocolError
from sapiens_batch.sinks import parquet
from sapiens_batch.sources.selection import uid_pair
from sapiens_batch.storage import open_store
from sapiens_batch.storage.addresses import absolute_uri, parent_uri
from sapiens_batch.storage.reading import read_input

FOOTER: Final = b"sapiens_batch_selection"
SELECTION_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Selection:
    """Chosen samples.

    Attributes:
        table: `key`, `shard_id`, `index`, in stored order; `near_duplicates` (samples that this one
            stands for, itself included) and `cluster` where the recipe asks for them.
        made: How it was made, as JSON values: recipe, job, digests, counts, versions.
    """

    table: pa.Table
    made: Mapping[str, Any]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def to_parquet(self) -> bytes:
        """The selection file."""
        footer = json.dumps(
            {"format_version": SELECTION_VERSION, **self.made}, sort_keys=True, ensure_ascii=False
        )
        return parquet.encode(self.table.replace_schema_metadata({FOOTER: footer.encode()}))

    def to_datacomp(self) -> bytes:
        """A `.npy` of sorted uids, dtype `u8,u8`, as DataComp's tools take it.

        Raises:
            InputError: A key is no 128-bit number in hex.
        """
        keys = [str(key) for key in self.table["key"].to_pylist()]
        found = [uid_pair(key) for key in keys]
        if None in found:
            raise InputError(
                f"key {keys[found.index(None)]!r} is no uid of 32 hex digits: write this selection "
                "as .parquet"
            )
        pairs = np.array(found, np.dtype("u8,u8"))
        buffer = io.BytesIO()
        np.save(buffer, np.sort(pairs))
        return buffer.getvalue()


def save_selection(
    selection: Selection, uri: str, storage_options: Mapping[str, Any] | None = None
) -> str:
    """Write a selection: `.parquet`, or `.npy` for DataComp's uids.

    Returns:
        The absolute address.

    Raises:
        InputError: The name has another ending, the file exists, or keys are no uids.
        StorageError: The store refused.
    """
    address = absolute_uri(uri)
    name = address.rpartition("/")[2]
    if not name.endswith((".parquet", ".npy")):
        raise InputError(f"{uri}: a selection ends with .parquet, or .npy for uids")
    data = selection.to_datacomp() if name.endswith(".npy") else selection.to_parquet()
    if not open_store(parent_uri(address), storage_options).create(name, data):
        raise InputError(f"{address} exists and is not overwritten; give another name")
    return address


def read_selection(uri: str, storage_options: Mapping[str, Any] | None = None) -> Selection:
    """The inverse of `save_selection` for Parquet files.

    Raises:
        InputError: The file is missing, damaged, or no selection file.
    """
    data = read_input(absolute_uri(uri), storage_options or {})
    try:
        table = parquet.decode(data)
    except ProtocolError as error:
        raise InputError(f"{uri} is no readable selection file: {error.__cause__}") from error
    footer = (table.schema.metadata or {}).get(FOOTER)
    if footer is None:
        raise InputError(f"{uri} is no selection file: its footer has no {FOOTER.decode()}")
    return Selection(table.replace_schema_metadata(None), json.loads(footer))
