"""The dense array of one task over all committed shards, read row by row.

A row costs two ranged reads, of the index and of the row's own bytes; the rest of the object stays
where it is. Many rows of one object are read with the object. Cropping rows to their frame is left
to `sample`, whole arrays to any Zarr library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from sapiens_batch.errors import ProtocolError
from sapiens_batch.job.commit import Commit, CommittedArray
from sapiens_batch.job.receipt import StoredObject
from sapiens_batch.labelset.shard import array_objects
from sapiens_batch.records import Array, ArrayField, LabelSchema
from sapiens_batch.sinks import zarr
from sapiens_batch.storage import Store

WHOLE_OBJECT_ROWS: Final = 4
"""From so many rows on one request for the object beats two a row: objects have some 32 rows, and
a request costs an object store as much time as some megabytes."""


class LabelArray:
    """Rows of one task's array.

    Args:
        store: The job directory.
        schema: Label schema of a task with an array.
        commits: Committed shards by id.
        whole_objects: Read each object at once and keep the last one, for rows asked for in order.

    Raises:
        ValueError: The task has no array.
    """

    def __init__(
        self,
        store: Store,
        schema: LabelSchema,
        commits: Mapping[str, Commit],
        *,
        whole_objects: bool = False,
    ) -> None:
        if schema.array is None:
            raise ValueError(f"task {schema.task} fills table columns only, it has no array")
        self.task = schema.task
        self.field: ArrayField = schema.array
        self._store = store
        self._commits = commits
        self._whole_objects = whole_objects
        self._last_object: tuple[str, bytes] = ("", b"")

    def __getitem__(self, place: tuple[str, int | slice | Array]) -> Array:
        """One row (*row_shape) that was labeled, or several as `select` gives them.

        Raises:
            KeyError: The one row was not labeled.
        """
        shard_id, rows = place
        if not isinstance(rows, int | np.integer):
            return self.select(shard_id, rows)
        found = self.row(shard_id, int(rows))
        if found is None:
            raise KeyError(f"row {rows} of shard {shard_id} has no {self.task} labels")
        return found

    def select(self, shard_id: str, rows: slice | Array) -> Array:
        """Several rows of a shard, stacked: (n, *row_shape); fill where a row was not labeled.

        Args:
            shard_id: A committed shard.
            rows: A slice, row numbers, or a boolean mask over all rows of the shard.

        Raises:
            KeyError: The shard is not committed.
            IndexError: A row is beyond the shard, or the mask has not one value for each row.
            ProtocolError: A stored object is damaged.
        """
        array = self._array(shard_id)
        num_rows = self._commits[shard_id].num_samples if array is None else array.shape[0]
        wanted = np.arange(num_rows)[rows]
        found = np.full((len(wanted), *self.field.row_shape), self.field.fill_value, self.dtype)
        if array is None:
            return found
        objects = array_objects(array)
        chunks = wanted // array.shard_rows
        for chunk in np.unique(chunks).tolist():
            if chunk not in objects:
                continue
            places = np.flatnonzero(chunks == chunk)
            positions = (wanted[places] % array.shard_rows).tolist()
            values = self._read_several(objects[chunk], positions, array.shard_rows)
            for place, value in zip(places.tolist(), values, strict=True):
                if value is not None:
                    found[place] = value
        return found

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return np.dtype(self.field.dtype)

    def row(self, shard_id: str, row: int) -> Array | None:
        """One row (*row_shape) in the field's dtype, or None where it was not labeled.

        Args:
            shard_id: A committed shard.
            row: Row in the shard's array, as the table's `<task>_row` says.

        Raises:
            KeyError: The shard is not committed.
            IndexError: The array has no such row.
            ProtocolError: The stored object is damaged.
        """
        array = self._array(shard_id)
        if array is None:
            return None
        if not 0 <= row < array.shape[0]:
            raise IndexError(f"row {row} of an array of {array.shape[0]} rows, shard {shard_id}")
        chunk, position = divmod(row, array.shard_rows)
        stored = array_objects(array).get(chunk)
        return None if stored is None else self._read(stored, position, array.shard_rows)

    def rows(self, shard_id: str) -> Iterator[tuple[int, Array]]:
        """Every labeled row of a shard with its number, reading each object once.

        Raises:
            KeyError: The shard is not committed.
            ProtocolError: A stored object is damaged.
        """
        array = self._array(shard_id)
        if array is None:
            return
        for chunk, stored in sorted(array_objects(array).items()):
            data = self._store.read(stored.key)
            for position in range(array.shard_rows):
                row = self._decode(stored, data, position, array.shard_rows)
                if row is not None:
                    yield chunk * array.shard_rows + position, row

    def _array(self, shard_id: str) -> CommittedArray | None:
        if shard_id not in self._commits:
            raise KeyError(f"shard {shard_id!r} is not committed in {self._store.uri}")
        return self._commits[shard_id].arrays.get(self.task)

    def _read_several(
        self, stored: StoredObject, positions: Sequence[int], shard_rows: int
    ) -> list[Array | None]:
        if len(positions) < WHOLE_OBJECT_ROWS:
            return [self._read(stored, position, shard_rows) for position in positions]
        data = self._store.read(stored.key)
        return [self._decode(stored, data, position, shard_rows) for position in positions]

    def _decode(
        self, stored: StoredObject, data: bytes, position: int, shard_rows: int
    ) -> Array | None:
        try:
            return zarr.decode_row(self.field, data, position, shard_rows)
        except ValueError as error:
            raise _damaged(stored, error) from error

    def _read(self, stored: StoredObject, position: int, shard_rows: int) -> Array | None:
        if self._whole_objects:
            held = self._last_object
            if held[0] != stored.key:
                self._last_object = held = (stored.key, self._store.read(stored.key))
            return self._decode(stored, held[1], position, shard_rows)
        tail = stored.size_bytes - zarr.index_size(shard_rows)
        try:
            index = zarr.parse_index(
                self._store.read_range(stored.key, tail, stored.size_bytes), shard_rows
            )
            found = zarr.row_range(index, position)
            if found is None:
                return None
            return zarr.decode_inner(self.field, self._store.read_range(stored.key, *found))
        except ValueError as error:
            raise _damaged(stored, error) from error


def _damaged(stored: StoredObject, error: ValueError) -> ProtocolError:
    return ProtocolError(f"{stored.key}: {error}; the object is damaged, run `verify`")
