"""Find and remove objects that no reader and no running attempt needs.

Removed is only what is older than a grace period and is spent or orphaned for good: never what a
commit, an order or a receipt that still counts names, and never an array object of an open shard,
because the next attempt at its chunk takes it. A job with a commit that cannot be read is left
alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from sapiens_batch.errors import ProtocolError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.receipt import Receipt
from sapiens_batch.protocol.snapshot import list_snapshots
from sapiens_batch.storage import MissingObjectError
from sapiens_batch.storage.base import ObjectInfo
from sapiens_batch.verify.job import note_names
from sapiens_batch.verify.names import Names, Standing

DEFAULT_GRACE_S: Final = 24 * 3600.0
"""Longer than any attempt at a chunk or seal takes."""

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
    now_s: float | None = None,
    on_younger: OnYounger | None = None,
) -> Iterator[Garbage]:
    """Stream what may be removed.

    Args:
        manifest: The job.
        grace_s: Age from which an object may be removed. Objects of unknown age stay.
        now_s: Unix time to count from; the present by default.
        on_younger: Called with what may be removed once it is that old.

    Raises:
        ProtocolError: A commit or receipt cannot be read, so that what it names is not known.
        StorageError: The store cannot be read.
    """
    before_s = (time.time() if now_s is None else now_s) - grace_s
    names = _names(manifest)
    old_snapshots = set(list_snapshots(manifest.store)[1:])
    for one in _unneeded(manifest, names, old_snapshots):
        if 0 < one.info.modified_s < before_s:
            yield one
        elif one.info.modified_s and on_younger is not None:
            on_younger(one)


def collect_garbage(
    manifest: Manifest,
    *,
    grace_s: float = DEFAULT_GRACE_S,
    now_s: float | None = None,
    on_younger: OnYounger | None = None,
) -> Iterator[Garbage]:
    """Remove what may be removed; yields each object after it is gone.

    Args:
        manifest: The job.
        grace_s: As for `find_garbage`.
        now_s: As for `find_garbage`.
        on_younger: As for `find_garbage`.

    Raises:
        ProtocolError, StorageError: As for `find_garbage`.
    """
    for one in find_garbage(manifest, grace_s=grace_s, now_s=now_s, on_younger=on_younger):
        manifest.store.delete(one.info.key)
        yield one


def _unneeded(manifest: Manifest, names: Names, old_snapshots: set[str]) -> Iterator[Garbage]:
    """What nobody needs, whatever its age."""
    for info in manifest.store.list(""):
        standing = names.standing(info.key)
        if standing in _COLLECTED:
            yield Garbage(info, str(standing))
        elif info.key in old_snapshots:
            yield Garbage(info, "snapshot")
    for info in manifest.store.unfinished():
        yield Garbage(info, "unfinished")


def _names(manifest: Manifest) -> Names:
    """What commits and the receipts of open generations name."""
    generations = manifest.generations()
    names = Names(generations)
    for commit in manifest.read_commits(generations):
        note_names(manifest, names, commit)
    for info in manifest.store.list(keys.RECEIPTS):
        parsed = keys.parse_receipt(info.key)
        if parsed is None or parsed[1] <= generations.get(parsed[0], -1):
            continue
        try:
            names.add_receipt(Receipt.from_bytes(manifest.store.read(info.key), info.key))
        except MissingObjectError:
            continue
        except ProtocolError:
            names.add_unreadable(parsed[0])
    return names
