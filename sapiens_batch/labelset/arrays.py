"""The dense array of one task over all committed shards, read row by row.

A row costs two ranged reads, of the index and of the row's own bytes, each with its checksum (I8);
the rest of the object stays where it is. Many rows of one object, and rows of small ones, are read
with the object, which is compared with the commit. Cropping rows to their frame is left
to `sample`, whole arrays to any Zarr library. Which rows are labeled is for the tables to say: an
object may also hold one of a sample that was quarantined after all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from sapiens_batch.protocol.commit import Commit, CommittedArray
from sapiens_batch.protocol.documents import StoredObject
from sapiens_batch.records import Array, ArrayField, LabelSchema
from sapiens_batch.sinks import zarr
from sapiens_batch.storage import Store
from sapiens_batch.storage.checked import damaged, read_range

WHOLE_OBJECT_ROWS: Final = 4
"""From so many rows on one request for the object beats two a row: objects have some 32 rows, and
a request costs an object store as much time as some megabytes."""

SMALL_OBJECT_BYTES: Final = 256 * 2**10
"""Up to this size one request for the object beats two a row. Small objects also differ less: one
in the place of another may have the same size, and an index that fits it."""


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
        self._last_index: tuple[str, Array] = ("", np.empty((0, 2), np.uint64))
        self._last_array: tuple[CommittedArray | None, dict[int, StoredObject]] = (None, {})

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
        """Several rows of a shard, stacked: (n, *row_shape); fill where a row is not stored.

        Args:
            shard_id: A committed shard.
            rows: A slice, row numbers, or a boolean mask over all rows of the shard.

        Raises:
            KeyError: The shard is not committed.
            IndexError: A row is beyond the shard, or the mask has not one value for each row.
            ProtocolError: A stored object is damaged.
        """
        array = self._array(shard_id)
        num_samples = self._commits[shard_id].num_samples
        num_rows = num_samples * self.field.rows_per_sample if array is None else array.shape[0]
        wanted = np.arange(num_rows)[rows]
        found = np.full((len(wanted), *self.field.row_shape), self.field.fill_value, self.dtype)
        if array is None:
            return found
        objects = self._objects(array)
        chunks = wanted // array.shard_rows
        for chunk in np.unique(chunks).tolist():
            if chunk not in objects:
                continue
            places = np.flatnonzero(chunks == chunk)
            positions = (wanted[places] % array.shard_rows).tolist()
            values = self._read(objects[chunk], positions, array.shard_rows)
            for place, position in zip(places.tolist(), positions, strict=True):
                if position in values:
                    found[place] = values[position]
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
        stored = self._objects(array).get(chunk)
        if stored is None:
            return None
        return self._read(stored, [position], array.shard_rows).get(position)

    def rows(self, shard_id: str) -> Iterator[tuple[int, Array]]:
        """Every stored row of a shard with its number, reading each object once.

        Raises:
            KeyError: The shard is not committed.
            ProtocolError: A stored object is damaged.
        """
        array = self._array(shard_id)
        if array is None:
            return
        for chunk, stored in sorted(self._objects(array).items()):
            for position, row in self._decode(stored, array.shard_rows):
                yield chunk * array.shard_rows + position, row

    def _array(self, shard_id: str) -> CommittedArray | None:
        if shard_id not in self._commits:
            raise KeyError(f"shard {shard_id!r} is not committed in {self._store.uri}")
        return self._commits[shard_id].arrays.get(self.task)

    def _objects(self, array: CommittedArray) -> Mapping[int, StoredObject]:
        if self._last_array[0] is not array:
            self._last_array = (array, array.by_chunk())
        return self._last_array[1]

    def _read(
        self, stored: StoredObject, positions: Sequence[int], shard_rows: int
    ) -> dict[int, Array]:
        """Rows of an object that were labeled, by position."""
        if self._reads_whole(stored) or len(positions) >= WHOLE_OBJECT_ROWS:
            return dict(self._decode(stored, shard_rows, positions))
        try:
            index = self._index(stored, shard_rows)
            spans = {position: zarr.row_range(index, position) for position in positions}
            return {
                position: zarr.decode_inner(self.field, read_range(self._store, stored, *span))
                for position, span in spans.items()
                if span is not None
            }
        except ValueError as error:
            raise damaged(stored.key, str(error)) from error

    def _decode(
        self, stored: StoredObject, shard_rows: int, positions: Sequence[int] | None = None
    ) -> Iterator[tuple[int, Array]]:
        data = self._read_object(stored)
        try:
            yield from zarr.decode_rows(self.field, data, shard_rows, positions)
        except ValueError as error:
            raise damaged(stored.key, str(error)) from error

    def _read_object(self, stored: StoredObject) -> bytes:
        if not self._reads_whole(stored):
            return stored.read(self._store)
        held = self._last_object
        if held[0] != stored.key:
            self._last_object = held = (stored.key, stored.read(self._store))
        return held[1]

    def _reads_whole(self, stored: StoredObject) -> bool:
        return self._whole_objects or stored.size_bytes <= SMALL_OBJECT_BYTES

    def _index(self, stored: StoredObject, shard_rows: int) -> Array:
        """The index of an object; the last one is kept, as rows of a sample lie in one object."""
        if self._last_index[0] != stored.key:
            tail = stored.size_bytes - zarr.index_size(shard_rows)
            data = read_range(self._store, stored, tail, stored.size_bytes)
            self._last_index = (stored.key, zarr.parse_index(data, shard_rows))
        return self._last_index[1]
