"""What must hold in every simulated history (I1 to I10), checked at every change and at the end.

The watcher keeps what was written of every object, whatever damage made of it later, so that it can
tell a commit that certifies damage from one that was damaged. Values are traced to the attempt that
gave them. Nothing here takes part in a history.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from sapiens_batch.errors import ProtocolError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.documents import StoredObject
from sapiens_batch.protocol.orders import RelabelOrder
from sapiens_batch.protocol.plan import PlanDocument
from sapiens_batch.protocol.snapshot import CommitSummary, summarize
from sapiens_batch.records import Status
from tests.simulation.store import Objects
from tests.simulation.truth import MAX_PERSONS, Truth
from tests.simulation.world import World

GRACE_S: Final = 24 * 3600.0
_DOCUMENTS = (keys.JOB, keys.PLAN, keys.COMMITS, keys.RELABEL)


class Violation(Exception):  # noqa: N818 - a finding of the simulator
    """An invariant does not hold."""


class Watch:
    """Follows one history.

    Args:
        truth: What attempts found.
        world: The time.
    """

    def __init__(self, truth: Truth, world: World) -> None:
        self._truth = truth
        self._world = world
        self._written: dict[str, bytes] = {}
        self._named: dict[str, set[str]] = {}
        self._commits: dict[str, bytes] = {}
        self._lost: set[str] = set()
        self._ever_lost: set[str] = set()
        self._collected: set[str] = set()
        self._orders: dict[str, list[tuple[RelabelOrder, int]]] = {}
        self.violations: list[str] = []

    def created(self, actor: str, key: str, data: bytes) -> None:
        """An object was created with these bytes."""
        if key.startswith(keys.COMMITS):
            before = self._commits.get(key)
            if before is not None and before != data and key not in self._lost:
                self._violated("I2", f"{actor} replaced {key}")
            self._commits[key] = data
            for naming in self._named.values():
                naming.discard(key)  # one that was lost named other objects
        elif key.startswith(keys.RELABEL):
            order = RelabelOrder.from_bytes(data, key)
            self._orders.setdefault(order.shard_id, []).append((order, self._world.calls))
        elif keys.parse_plan_document(key) is not None:
            self._check_plan(actor, key, data)
        self._written[key] = data
        self._lost.discard(key)
        self._collected.discard(key)
        if key.startswith(keys.COMMITS):
            self._check_commit(actor, key, data)

    def copied(self, source: str, key: str) -> None:
        """An object is about to be copied; a name that was lost may be another object's now."""
        if source in self._ever_lost:
            self._ever_lost.add(key)

    def removed(self, actor: str, key: str) -> None:
        """An actor removed an object."""
        if key.startswith(_DOCUMENTS):
            self._violated("I2", f"{actor} removed {key}")
        for commit in self._named.get(key, ()):
            if commit not in self._lost:
                self._violated("I3", f"{actor} removed {key}, which {commit} names")
        self._collected.add(key)

    def damaged(self, key: str) -> None:
        """An object was damaged or lost."""
        self._lost.add(key)
        self._ever_lost.add(key)

    @property
    def damaged_keys(self) -> set[str]:
        """Objects that are damaged or lost."""
        return self._lost

    def said_complete(self, actor: str, shard_ids: Iterable[str], objects: Objects) -> None:
        """A driver said that these shards are all done (I9)."""
        for shard_id in shard_ids:
            lost = any(shard_id in key for key in self._lost if key.startswith(keys.COMMITS))
            if newest_commit_key(objects, shard_id) is None and not lost:
                self._violated("I9", f"{actor} said complete without a commit of {shard_id}")

    def read_summary(self, actor: str, summary: CommitSummary) -> None:
        """An actor was told this of a commit, by a snapshot or by the commit itself."""
        key = keys.commit(summary.shard_id, summary.generation)
        written = self._commits.get(key)
        if key not in self._ever_lost and (
            written is None or summarize(Commit.from_bytes(written, key)) != summary
        ):
            self._violated("I2", f"{actor} was told what {key} does not say")

    def check_present(self, objects: Objects) -> None:
        """That all of the newest commits is there as it was written, and says what was found."""
        for shard in self._truth.corpus.shards:
            newest = newest_commit_key(objects, shard.shard_id)
            if newest is None:
                self._violated("I1", f"{shard.key} has no commit")
                continue
            held = objects.find(newest)
            assert held is not None
            try:
                commit = Commit.from_bytes(held.blob.data, newest)
            except ProtocolError as error:
                self._violated("I8", f"damage was not found: {error}")
                continue
            for stored in named_objects(commit):
                found = objects.find(stored.key)
                if found is None:
                    self._violated("I8", f"{newest} names {stored.key}, which is gone")
                elif hashlib.sha256(found.blob.data).hexdigest() != stored.sha256:
                    self._violated("I8", f"{stored.key} is damaged and not found to be")

    def _violated(self, invariant: str, message: str) -> None:
        self.violations.append(f"{invariant}: {message}")

    def _check_plan(self, actor: str, key: str, data: bytes) -> None:
        """That a new plan is of a table as it was written."""
        document = PlanDocument.from_bytes(data, key)
        table = keys.plan_table(document.number, document.write_id)
        if hashlib.sha256(self._written.get(table, b"")).hexdigest() != document.sha256:
            self._violated("I8", f"{actor} planned {table} with a digest of other bytes")

    def _check_commit(self, actor: str, key: str, data: bytes) -> None:
        """That a new commit names what is there, and that this is what attempts found."""
        commit = Commit.from_bytes(data, key)
        whole = True
        for stored in named_objects(commit):
            self._named.setdefault(stored.key, set()).add(key)
            written = self._written.get(stored.key)
            if stored.key in self._ever_lost:
                whole = False  # verify must find it, see `check_present`
            elif written is None:
                self._violated("I3", f"{actor} committed {stored.key}, which nobody wrote")
                whole = False
            elif stored.key in self._collected:
                # nobody may sleep for longer than gc waits; who does is told by verify
                if self._world.longest_sleep_s < GRACE_S:
                    self._violated("I3", f"{actor} committed {stored.key}, which gc removed")
                self._world.happened["slept for too long"] += 1
            elif hashlib.sha256(written).hexdigest() != stored.sha256:
                self._violated(
                    "I8",
                    f"{actor} committed {stored.key} with a digest of other bytes",
                )
                whole = False
        if whole:
            for invariant, message in self._problems(commit):
                self._violated(invariant, f"{key} by {actor}: {message}")

    def _problems(self, commit: Commit) -> Iterator[tuple[str, str]]:
        """What is wrong with the rows and arrays of a commit, as they were written."""
        natures = self._truth.corpus.natures.get(commit.shard_id)
        if natures is None:
            yield "I1", "is of no shard of the input"
            return
        images = self._rows(commit, "images")
        persons = self._rows(commit, "persons")
        indices = [row["index"] for row in images]
        if indices != list(range(len(natures))):
            yield "I1", f"has rows of samples {indices}, there are {len(natures)}"
            return
        by_sample: dict[int, list[dict[str, Any]]] = {index: [] for index in indices}
        for row in persons:
            if row["index"] not in by_sample:
                yield "I1", f"has a person of sample {row['index']}"
                return
            by_sample[row["index"]].append(row)
        yield from self._order_problems(commit, images)
        for task, array in commit.arrays.items():
            yield from self._root_problems(task, array.root, [one.key for one in array.chunks])
        for row in images:
            yield from self._sample_problems(commit, row, by_sample[row["index"]])

    def _order_problems(
        self, commit: Commit, images: list[dict[str, Any]]
    ) -> Iterator[tuple[str, str]]:
        """Orders up to a generation that it did not carry out, though it closes them."""
        for order, ordered in self._orders.get(commit.shard_id, ()):
            key = keys.relabel_order(commit.shard_id, order.generation)
            if order.generation > commit.generation or key in self._ever_lost:
                continue
            samples = range(len(images)) if order.samples is None else order.samples
            for index in samples:
                label = self._truth.find(images[index]["tag"])
                if label is not None and label.born < ordered:
                    yield "I9", f"order {order.generation} is lost: sample {index} has old labels"

    def _sample_problems(
        self, commit: Commit, row: dict[str, Any], persons: list[dict[str, Any]]
    ) -> Iterator[tuple[str, str]]:
        """What is wrong with the rows of one sample."""
        index = row["index"]
        label = self._truth.find(row["tag"])
        if label is None:
            yield "I8", f"sample {index} has a label that no attempt gave"
            return
        if (label.shard_id, label.index) != (commit.shard_id, index):
            yield "I7", f"sample {index} has the label of sample {label.index}"
        if row["status"] != label.status or row["num_persons"] != label.persons:
            yield "I7", f"sample {index} is {row['status']}, its attempt said {label.status}"
        if [one["person"] for one in persons] != list(range(label.persons)):
            yield "I7", f"sample {index} has {len(persons)} persons, its attempt {label.persons}"
        if any(one["tag"] != label.tag for one in persons):
            yield "I7", f"persons of sample {index} are of another attempt"
        if label.status is not Status.QUARANTINED:
            yield from self._value_problems(commit, "seg", row, index, label.tag)
        for number, one in enumerate(persons):
            place = index * MAX_PERSONS + number
            yield from self._value_problems(commit, "normal", one, place, label.tag)

    def _value_problems(
        self, commit: Commit, task: str, row: dict[str, Any], place: int, tag: int
    ) -> Iterator[tuple[str, str]]:
        """What is wrong with the array row that a table row points at."""
        array = commit.arrays.get(task)
        if row[f"{task}_row"] != place:
            yield "I10", f"{task}_row is {row[f'{task}_row']}, expected {place}"
        if array is None:
            yield "I10", f"there is no array of {task} for row {place}"
            return
        if row[f"{task}_array"] != array.root:
            yield "I10", f"{task}_array is {row[f'{task}_array']}, the array is {array.root}"
        chunk, position = divmod(place, array.shard_rows)
        data = self._written.get(f"{array.root}/c/{chunk}/0")
        found = None if data is None else dict(json.loads(data)).get(position)
        if found != tag:
            yield "I10", f"row {place} of {array.root} holds {found}, its sample has {tag}"

    def _root_problems(
        self, task: str, root: str, chunk_keys: list[str]
    ) -> Iterator[tuple[str, str]]:
        """That objects of an array lie under its root."""
        for key in chunk_keys:
            if not key.startswith(f"{root}/c/"):
                yield "I10", f"{key} of {task} does not lie under {root}"

    def _rows(self, commit: Commit, table: str) -> list[dict[str, Any]]:
        stored = commit.tables.get(table)
        rows: list[dict[str, Any]] = [] if stored is None else json.loads(self._written[stored.key])
        return rows


def named_objects(commit: Commit) -> Iterator[StoredObject]:
    """Every object that a commit names."""
    yield from commit.tables.values()
    for array in commit.arrays.values():
        yield array.metadata
        yield from array.chunks


def newest_commit_key(objects: Objects, shard_id: str) -> str | None:
    """The commit of a shard that readers see."""
    found = [keys.parse_commit(key) for key in list(objects.keys()) if key.startswith(keys.COMMITS)]
    generations = [one[1] for one in found if one is not None and one[0] == shard_id]
    return keys.commit(shard_id, max(generations)) if generations else None
