"""Which objects of a job directory are named by a commit, an order, or a receipt that still counts.

Built from documents, then asked about listed keys. Deciding what to do about the others is left to
the caller. A hundred thousand shards take about 100 MB: array chunks are bits of an integer.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sapiens_batch.protocol import keys
from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.keys import ObjectName
from sapiens_batch.protocol.receipt import Receipt


class Standing(StrEnum):
    """What an object is to the job.

    Attributes:
        NAMED: A document names it, it is such a document, or its name is one that attempts at an
            open generation share.
        SPENT: A receipt of a generation that is committed or passed by.
        ORPHAN: Nothing names it, and nothing ever will.
        IN_FLIGHT: Nothing names it yet, but a running attempt may; only its age tells.
        FOREIGN: Not an object of a job directory.
    """

    NAMED = "named"
    SPENT = "spent"
    ORPHAN = "orphan"
    IN_FLIGHT = "in_flight"
    FOREIGN = "foreign"


_OWN_FOLDERS = (keys.PLAN, keys.SNAPSHOTS, keys.RUNS)


class Names:
    """What documents name.

    Args:
        generations: Newest committed generation of every visible shard.
    """

    def __init__(self, generations: Mapping[str, int]) -> None:
        self._generations = dict(generations)
        self._tables: dict[str, set[str]] = {}
        self._arrays: dict[str, int] = {}
        self._unreadable: set[str] = set()

    def newest(self, shard_id: str) -> int:
        """Newest committed generation of a shard, -1 where there is none."""
        return self._generations.get(shard_id, -1)

    def add_commit(self, commit: Commit) -> None:
        """Take in everything that a commit names, of the newest generation or an older one."""
        shard_id = commit.shard_id
        self._generations[shard_id] = max(commit.generation, self.newest(shard_id))
        for stored in commit.tables.values():
            self._tables.setdefault(shard_id, set()).add(stored.key)
        for array in commit.arrays.values():
            self._add_array_object(array.metadata.key)
            for stored in array.chunks:
                self._add_array_object(stored.key)

    def add_receipt(self, receipt: Receipt) -> None:
        """Take in what a receipt of an open generation names."""
        for stored in receipt.arrays.values():
            self._add_array_object(stored.key)

    def add_unreadable(self, shard_id: str) -> None:
        """Note that a document of a shard could not be read, so that what it names is unknown."""
        self._unreadable.add(shard_id)

    def standing(self, key: str) -> Standing:
        """What an object is to the job."""
        name = keys.parse(key)
        if name is None:
            own = key == keys.JOB or key.startswith(_OWN_FOLDERS)
            return Standing.NAMED if own else Standing.FOREIGN
        if name.shard_id in self._unreadable or name.kind in ("commit", "relabel"):
            return Standing.NAMED
        closed = name.generation <= self.newest(name.shard_id)
        if name.kind == "receipt":
            return Standing.SPENT if closed else Standing.NAMED
        if self._names(name, key) or not (closed or name.write_id):
            return Standing.NAMED
        return Standing.ORPHAN if closed else Standing.IN_FLIGHT

    def _names(self, name: ObjectName, key: str) -> bool:
        if name.kind == "table":
            return key in self._tables.get(name.shard_id, ())
        return bool(self._arrays.get(keys.array_root(key), 0) & _bit(name))

    def _add_array_object(self, key: str) -> None:
        name = keys.parse(key)
        if name is not None:
            root = keys.array_root(key)
            self._arrays[root] = self._arrays.get(root, 0) | _bit(name)


def _bit(name: ObjectName) -> int:
    """An array object as one bit: the document, then the chunks."""
    return 1 << (0 if name.chunk is None else name.chunk + 1)
