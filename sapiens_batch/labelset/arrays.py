"""The dense array of one task over all committed shards, read row by row.

A row costs two ranged reads, of the index and of the row's own bytes; the rest of the object stays
where it is. Cropping rows to their frame is left to `sample`, whole arrays to any Zarr library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sapiens_batch.errors import ProtocolError
from sapiens_batch.job.commit import Commit, CommittedArray
from sapiens_batch.job.receipt import StoredObject
from sapiens_batch.records import Array, ArrayField, LabelSchema
from sapiens_batch.sinks import zarr
from sapiens_batch.storage import Store, keys


class LabelArray:
    """Rows of one task's array.

    Args:
        store: The job directory.
        schema: Label schema of a task with an array.
        commits: Committed shards by id.

    Raises:
        ValueError: The task has no array.
    """

    def __init__(self, store: Store, schema: LabelSchema, commits: Mapping[str, Commit]) -> None:
        if schema.array is None:
            raise ValueError(f"task {schema.task} fills table columns only, it has no array")
        self.task = schema.task
        self.field: ArrayField = schema.array
        self._store = store
        self._commits = commits

    def __getitem__(self, place: tuple[str, int]) -> Array:
        """As `row`, for a row that was labeled.

        Raises:
            KeyError: The row was not labeled.
        """
        found = self.row(*place)
        if found is None:
            raise KeyError(f"row {place[1]} of shard {place[0]} has no {self.task} labels")
        return found

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
        stored = self._objects(array, shard_id).get(chunk)
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
        for chunk, stored in sorted(self._objects(array, shard_id).items()):
            data = self._store.read(stored.key)
            for position in range(array.shard_rows):
                try:
                    row = zarr.decode_row(self.field, data, position, array.shard_rows)
                except ValueError as error:
                    raise _damaged(stored, error) from error
                if row is not None:
                    yield chunk * array.shard_rows + position, row

    def _array(self, shard_id: str) -> CommittedArray | None:
        if shard_id not in self._commits:
            raise KeyError(f"shard {shard_id!r} is not committed in {self._store.uri}")
        return self._commits[shard_id].arrays.get(self.task)

    def _objects(self, array: CommittedArray, shard_id: str) -> dict[int, StoredObject]:
        """The array's objects by chunk; only these exist for a reader (I3)."""
        ndim = len(self.field.row_shape)
        named = {stored.key: stored for stored in array.chunks}
        num_chunks = -(-array.shape[0] // array.shard_rows)
        places = {
            chunk: keys.array_chunk(self.task, shard_id, chunk, ndim) for chunk in range(num_chunks)
        }
        return {chunk: named[key] for chunk, key in places.items() if key in named}

    def _read(self, stored: StoredObject, position: int, shard_rows: int) -> Array | None:
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
