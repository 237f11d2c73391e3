"""Find and remove objects that no reader and no running attempt needs.

Removed is only what is older than a grace period by the store's own clock, and is spent or
orphaned for good: never what a commit, an order or a receipt that still counts names, nor what
attempts at an open shard share. As a listing may lag, the commits and receipts that could name an
object are looked at by name before it goes (I9). A job with a commit that cannot be read is left
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from sapiens_batch.errors import DamagedReceiptError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.receipt import read_receipt
from sapiens_batch.protocol.snapshot import list_snapshots
from sapiens_batch.storage.base import ObjectInfo
from sapiens_batch.verify.job import note_names
from sapiens_batch.verify.names import Names, Standing

DEFAULT_GRACE_S: Final = 24 * 3600.0
"""Longer than any attempt at a chunk or seal takes."""

MIN_GRACE_S: Final = 3600.0
"""What an attempt may take that is under way; of a complete job there is none."""

_COLLECTED: Final = (Standing.SPENT, Standing.ORPHAN, Standing.IN_FLIGHT)


@dataclass(frozen=True, slots=True)
class Garbage:
    """One object that may be removed.

    Attributes:
        info: The object.
        standing: Why it is not needed.
    """

    info: ObjectInfo
    standing: str


OnYounger = Callable[[Garbage], None]


def find_garbage(
    manifest: Manifest,
    *,
    grace_s: float = DEFAULT_GRACE_S,
    on_younger: OnYounger | None = None,
) -> Iterator[Garbage]:
    """Stream what may be removed.

    Args:
        manifest: The job.
        grace_s: Age from which an object may be removed, at least `MIN_GRACE_S` unless the job is
            complete. Objects of unknown age stay.
        on_younger: Called with what may be removed once it is that old.

    Raises:
        ProtocolError: A commit cannot be read, so that what it names is not known.
        StorageError: The store cannot be read.
    """
    now_s = manifest.store.now_s()
    found = _Collection(manifest)
    for one in found.unneeded():
        at_rest = found.is_complete and one.standing != Standing.IN_FLIGHT
        before_s = (now_s or 0.0) - max(grace_s, 0.0 if at_rest else MIN_GRACE_S)
        if not 0 < one.info.modified_s < before_s:
            if one.info.modified_s and on_younger is not None:
                on_younger(one)
        elif not found.is_needed(one.info.key):
            yield one


def collect_garbage(
    manifest: Manifest,
    *,
    grace_s: float = DEFAULT_GRACE_S,
    on_younger: OnYounger | None = None,
) -> Iterator[Garbage]:
    """Remove what may be removed; yields each object after it is gone.

    Args:
        manifest: The job.
        grace_s: As for `find_garbage`.
        on_younger: As for `find_garbage`.

    Raises:
        ProtocolError, StorageError: As for `find_garbage`.
    """
    for one in find_garbage(manifest, grace_s=grace_s, on_younger=on_younger):
        manifest.store.delete(one.info.key)
        yield one


class _Collection:
    """What is named in a job, as listed when it began, and looked at since.

    Attributes:
        is_complete: Whether every planned shard is committed, and nothing is ordered.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        generations = manifest.generations()
        self._names = Names(generations)
        for commit in manifest.read_commits(generations):
            note_names(manifest, self._names, commit)
        for info in manifest.store.list(keys.RECEIPTS):
            parsed = keys.parse_receipt(info.key)
            if parsed is not None and parsed[1] > generations.get(parsed[0], -1):
                self._note_receipt(*parsed)
        self._looked_at: set[str] = set()
        planned = (shard.shard_id for shard in manifest.shards())
        self.is_complete = all(one in generations for one in planned) and not (
            manifest.open_orders(generations)
        )

    def unneeded(self) -> Iterator[Garbage]:
        """What nobody needs as far as is known, whatever its age."""
        store = self._manifest.store
        old_snapshots = set(list_snapshots(store)[1:])
        for info in store.list(""):
            standing = self._names.standing(info.key)
            if standing in _COLLECTED:
                yield Garbage(info, str(standing))
            elif info.key in old_snapshots:
                yield Garbage(info, "snapshot")
        for info in store.unfinished():
            yield Garbage(info, "unfinished")

    def is_needed(self, key: str) -> bool:
        """Whether something names an object after all that no listing showed."""
        name = keys.parse(key)
        if name is None:
            return False
        if name.shard_id not in self._looked_at:
            self._looked_at.add(name.shard_id)
            known = self._names.newest(name.shard_id)
            newest = self._manifest.newest_generation(name.shard_id, listed=known)
            if newest > known:
                commit = self._manifest.commit(name.shard_id, newest)
                note_names(self._manifest, self._names, commit)
        if name.chunk is not None and name.generation > self._names.newest(name.shard_id):
            self._note_receipt(name.shard_id, name.generation, name.chunk)
        return self._names.standing(key) not in _COLLECTED

    def _note_receipt(self, shard_id: str, generation: int, chunk: int) -> None:
        store = self._manifest.store
        try:
            self._names.add_receipt(read_receipt(store, shard_id, chunk, generation)[0])
        except DamagedReceiptError:
            if store.exists(keys.receipt(shard_id, chunk, generation)):
                self._names.add_unreadable(shard_id)
