"""What an export keeps about itself: its plan, one receipt a shard, and the mark that it is whole.

All three are created once (I6), so that an interrupted export continues, a finished one has nothing
to do, and several processes can share one. They live below `.export/`, which the tools that the
exports are for do not look into.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from sapiens_batch.protocol.documents import Count, Document, Hex32, Sha256, StoredObject, now
from sapiens_batch.storage import Store
from sapiens_batch.storage.checked import damaged, read_range

FORMAT_VERSION = 1

PLAN = ".export/plan.json"
DONE = ".export/done.json"
RECEIPTS = ".export/shards/"
PIECES = ".export/pieces/"
PROVENANCE = "provenance.json"

_BLOCK_BYTES = 16 * 2**20


class PlannedShard(NamedTuple):
    """One committed shard of the job, in the order of the job's plan.

    Attributes:
        write_id: The commit that the export is made from.
        first: Samples of the shards before it, selected or not.
    """

    shard_id: Hex32
    write_id: Hex32
    first: Count


class ExportPlan(Document):
    """What is exported, how, and from which commits; fixed by the first run.

    Attributes:
        options: Its options, resolved.
        where: The filter as it was given; empty for none.
        select_sha256: Digest of the selection file; empty for none.
    """

    format_version: Annotated[int, Field(ge=1, le=FORMAT_VERSION)] = FORMAT_VERSION
    format: str
    options: dict[str, Any]
    where: str = ""
    select_sha256: str = ""
    job: str
    spec_digest: Sha256
    shards: tuple[PlannedShard, ...]
    created: str = Field(default_factory=now)

    @property
    def decisions(self) -> dict[str, Any]:
        """What a later run with the same output must repeat."""
        return {
            "format": self.format,
            "options": self.options,
            "where": self.where,
            "select_sha256": self.select_sha256,
            "spec_digest": self.spec_digest,
        }


class ShardReceipt(Document):
    """One exported shard.

    Attributes:
        number: Position of the shard in the plan.
        samples: Samples that were chosen.
        objects: What was written, in order.
    """

    number: Count
    shard_id: Hex32
    samples: Count
    objects: tuple[StoredObject, ...]
    created: str = Field(default_factory=now)


class ExportDone(Document):
    """The mark that every object of an export is there.

    Attributes:
        num_objects: Objects, without those below `.export/`.
    """

    samples: Count
    num_objects: Count
    size_bytes: Count
    created: str = Field(default_factory=now)


def receipt(number: int) -> str:
    """The receipt of a shard."""
    return f"{RECEIPTS}{number:06d}.json"


def piece(number: int, name: str) -> str:
    """A shard's contribution to an object of the whole export; removed when that is made."""
    return f"{PIECES}{number:06d}/{name}"


class Finished:
    """All shards of an export, done: what exporters see of them when they finish."""

    def __init__(self, store: Store, plan: ExportPlan) -> None:
        self._store = store
        self._plan = plan

    def receipts(self) -> Iterator[ShardReceipt]:
        """Their receipts in order."""
        for number in range(len(self._plan.shards)):
            key = receipt(number)
            yield ShardReceipt.from_bytes(self._store.read(key), key)

    def pieces(self, name: str) -> Iterator[Iterator[bytes]]:
        """The piece of every shard that has one, in order, each in blocks."""
        for one in self.receipts():
            key = piece(one.number, name)
            yield from (_blocks(self._store, stored) for stored in one.objects if stored.key == key)


def _blocks(store: Store, stored: StoredObject) -> Iterator[bytes]:
    """The object in blocks; that they are the recorded ones is known after the last (I8)."""
    digest = hashlib.sha256()
    for start in range(0, stored.size_bytes, _BLOCK_BYTES):
        block = read_range(store, stored, start, min(stored.size_bytes, start + _BLOCK_BYTES))
        digest.update(block)
        yield block
    if digest.hexdigest() != stored.sha256:
        raise damaged(stored.key, "its digest is not the recorded one", "export to another folder")
