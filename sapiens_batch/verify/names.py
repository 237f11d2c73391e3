"""Which objects of a job directory are named by a commit, an order, or a receipt that still counts.

Built from documents, then asked about listed keys. Deciding what to do about the others is left to
the caller. A hundred thousand shards take about 100 MB: array chunks are bits of an integer.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sapiens_batch.protocol import keys
from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.documents import StoredObject
from sapiens_batch.protocol.keys import ObjectName
from sapiens_batch.protocol.receipt import Receipt


class Standing(StrEnum):
    """What an object is to the job.

    Attributes:
        NAMED: A document names it, or it is such a document.
        SPENT: It served a generation that is committed: receipts, attempts, parts.
        ORPHAN: Nothing names it, and nothing ever will.
        IN_FLIGHT: Nothing names it yet, but a running attempt may; only its age tells.
        ADOPTABLE: An array object of an open shard: the next attempt at its chunk will take it.
        FOREIGN: Not an object of a job directory.
    """

    NAMED = "named"
    SPENT = "spent"
    ORPHAN = "orphan"
    IN_FLIGHT = "in_flight"
    ADOPTABLE = "adoptable"
    FOREIGN = "foreign"


_OWN_FOLDERS = (keys.PLAN, keys.SNAPSHOTS, keys.LEASES, keys.RUNS)


class Names:
    """What documents name.

    Args:
        generations: Newest committed generation of every visible shard.
    """

    def __init__(self, generations: Mapping[str, int]) -> None:
        self._generations = generations
        self._tables: dict[str, set[str]] = {}
        self._chunks: dict[tuple[str, str, int], int] = {}
        self._documents: set[tuple[str, str, int]] = set()
        self._receipts: dict[tuple[str, int], dict[int, set[str]]] = {}
        self._unreadable: set[str] = set()

    def add_commit(self, commit: Commit) -> None:
        """Take in everything that a commit names, of the newest generation or an older one."""
        for stored in commit.tables.values():
            self._tables.setdefault(commit.shard_id, set()).add(stored.key)
        for array in commit.arrays.values():
            self._add_array_object(array.metadata)
            for stored in array.chunks:
                self._add_array_object(stored)

    def add_receipt(self, receipt: Receipt) -> None:
        """Take in what a receipt of an open generation names."""
        place = (receipt.shard_id, receipt.generation)
        parts = {stored.key for stored in receipt.parts.values()}
        self._receipts.setdefault(place, {})[receipt.chunk] = parts
        for stored in receipt.arrays.values():
            self._add_array_object(stored)

    def add_unreadable(self, shard_id: str) -> None:
        """Note that a document of a shard could not be read, so that what it names is unknown."""
        self._unreadable.add(shard_id)

    def standing(self, key: str) -> Standing:
        """What an object is to the job."""
        name = keys.parse(key)
        if name is None:
            own = key == keys.JOB or key.startswith(_OWN_FOLDERS)
            return Standing.NAMED if own else Standing.FOREIGN
        if name.shard_id in self._unreadable:
            return Standing.NAMED
        match name.kind:
            case "commit" | "relabel":
                return Standing.NAMED
            case "receipt" | "attempt":
                return Standing.SPENT if self._is_closed(name) else Standing.NAMED
            case "part":
                return self._part_standing(name, key)
            case "table":
                if key in self._tables.get(name.shard_id, ()):
                    return Standing.NAMED
                return Standing.ORPHAN if self._is_closed(name) else Standing.IN_FLIGHT
            case "array_chunk" | "array_document":
                if self._names_array_object(name):
                    return Standing.NAMED
                return Standing.ORPHAN if self._is_closed(name) else Standing.ADOPTABLE

    def _is_closed(self, name: ObjectName) -> bool:
        """Whether no attempt at the object's generation counts any more."""
        return name.generation <= self._generations.get(name.shard_id, -1)

    def _part_standing(self, name: ObjectName, key: str) -> Standing:
        if self._is_closed(name):
            return Standing.SPENT
        parts = self._receipts.get((name.shard_id, name.generation), {}).get(name.chunk or 0)
        if parts is None:
            return Standing.IN_FLIGHT
        return Standing.NAMED if key in parts else Standing.ORPHAN

    def _add_array_object(self, stored: StoredObject) -> None:
        name = keys.parse(stored.key)
        if name is None:
            return
        place = (name.shard_id, name.name, name.generation)
        if name.kind == "array_document":
            self._documents.add(place)
        elif name.chunk is not None:
            self._chunks[place] = self._chunks.get(place, 0) | 1 << name.chunk

    def _names_array_object(self, name: ObjectName) -> bool:
        place = (name.shard_id, name.name, name.generation)
        if name.kind == "array_document":
            return place in self._documents
        return bool(self._chunks.get(place, 0) >> (name.chunk or 0) & 1)
