"""Check a whole job from its storage alone.

The only inputs are the job directory and, where drift is asked for, the listed input. An unfinished
job is not a damaged one: what is missing is listed. Nothing is written; mending is left to
`repair`, removing orphans to `garbage`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from sapiens_batch.errors import ProtocolError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.documents import Counts
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.orders import RelabelOrder
from sapiens_batch.protocol.plan import compare, read_plan
from sapiens_batch.records import Shard
from sapiens_batch.storage import MissingObjectError
from sapiens_batch.verify.names import Names, Standing
from sapiens_batch.verify.open_shards import check_receipts
from sapiens_batch.verify.report import Drift, Fault, Finding, Pile, Report
from sapiens_batch.verify.shards import ShardChecker

MAX_EXAMPLES: Final = 10


def check_job(
    manifest: Manifest, *, sample_fraction: float = 1.0, source: Iterable[Shard] | None = None
) -> Report:
    """Check everything that a job has stored (I1 to I6 as far as storage shows them).

    Args:
        manifest: The job.
        sample_fraction: Share of the objects whose bytes are read; of the others presence and size
            are checked.
        source: The input as it is listed now, to compare it with the plan; None to leave it.

    Raises:
        StorageError: The store cannot be read.
    """
    return _JobChecker(manifest, sample_fraction).run(source)


class _JobChecker:
    """One check in progress.

    Args:
        manifest: The job.
        sample_fraction: Share of the objects to read.
    """

    def __init__(self, manifest: Manifest, sample_fraction: float) -> None:
        self._manifest = manifest
        self._sample_fraction = sample_fraction
        self._shards = ShardChecker(manifest.store, manifest.job, sample_fraction)
        self._generations = manifest.generations()
        self._names = Names(self._generations)
        self._findings: list[Finding] = []
        self._planned: dict[str, Shard] = {}
        self._counts = Counts()

    def run(self, source: Iterable[Shard] | None) -> Report:
        """Check plans, commits, receipts, then what else is there."""
        plan_is_whole = self._read_plans()
        orders = self._manifest.open_orders(self._generations)
        for shard_id, generation in sorted(self._generations.items()):
            self._check_shard(shard_id, generation, plan_is_whole)
        self._findings += self._check_orders()
        self._findings += self._check_open_shards()
        orphans = self._pile_up()
        missing = [one.key for one in self._planned.values() if self._is_open(one.shard_id)]
        return Report(
            name=self._manifest.job.name,
            output=self._manifest.store.uri,
            num_shards=len(self._planned),
            committed_shards=len(self._generations),
            missing_shards=tuple(missing),
            open_orders=len(orders),
            counts=self._counts,
            checked_objects=self._shards.checked.objects,
            checked_bytes=self._shards.checked.size_bytes,
            sample_fraction=self._sample_fraction,
            findings=tuple(self._findings),
            orphans=orphans,
            drift=None if source is None else _drift(self._planned.values(), source),
        )

    def _is_open(self, shard_id: str) -> bool:
        return shard_id not in self._generations

    def _read_plans(self) -> bool:
        """Take in the planned shards; returns whether all plans could be read."""
        try:
            for document in self._manifest.plans():
                for shard in read_plan(self._manifest.store, document):
                    self._planned[shard.shard_id] = shard
        except (ProtocolError, MissingObjectError) as error:
            self._findings.append(Finding(Fault.PLAN_DAMAGED, keys.PLAN, str(error)))
            return False
        return True

    def _check_shard(self, shard_id: str, generation: int, plan_is_whole: bool) -> None:
        """Check the newest commit of a shard, and note what its earlier ones name."""
        key = keys.commit(shard_id, generation)
        try:
            commit = self._manifest.commit(shard_id, generation)
        except ProtocolError as error:
            self._names.add_unreadable(shard_id)
            self._findings.append(Finding(Fault.COMMIT_DAMAGED, key, str(error), shard_id))
            return
        note_names(self._manifest, self._names, commit)
        self._counts = self._counts + commit.counts
        self._findings += self._check_planned(commit, key, plan_is_whole)
        self._findings += self._shards.check(commit)

    def _check_planned(self, commit: Commit, key: str, plan_is_whole: bool) -> Iterator[Finding]:
        shard = self._planned.get(commit.shard_id)
        if shard is None:
            if plan_is_whole:
                message = f"shard {commit.shard_key} is in no plan"
                yield Finding(Fault.COMMIT_UNPLANNED, key, message)
        elif (shard.key, shard.version) != (commit.shard_key, commit.shard_version):
            message = (
                f"names {commit.shard_key} at version {commit.shard_version}, planned is "
                f"{shard.key} at {shard.version}"
            )
            yield Finding(Fault.COMMIT_DAMAGED, key, message, commit.shard_id)

    def _check_orders(self) -> Iterator[Finding]:
        """That orders which are to be carried out can be read; the next run labels all samples."""
        store = self._manifest.store
        for info in store.list(keys.RELABEL):
            parsed = keys.parse_relabel_order(info.key)
            if parsed is None or parsed[1] <= self._names.newest(parsed[0]):
                continue
            try:
                RelabelOrder.from_bytes(store.read(info.key), info.key)
            except ProtocolError as error:
                yield Finding(Fault.ORDER_DAMAGED, info.key, str(error), parsed[0])

    def _check_open_shards(self) -> Iterator[Finding]:
        listed = (info.key for info in self._manifest.store.list(keys.RECEIPTS))
        parsed = (one for one in map(keys.parse_receipt, listed) if one is not None)
        for place, found in groupby(parsed, lambda one: one[:2]):
            if place[1] > self._names.newest(place[0]):
                chunks = [chunk for _, _, chunk in found]
                yield from check_receipts(
                    self._manifest, place, chunks, self._names, self._sample_fraction
                )

    def _pile_up(self) -> dict[str, Pile]:
        """Count the objects that nothing names, by what they are."""
        piles: dict[str, Pile] = {}
        for info in self._manifest.store.list(""):
            standing = self._names.standing(info.key)
            if standing is not Standing.NAMED:
                pile = piles.get(standing, Pile())
                more = () if len(pile.examples) >= MAX_EXAMPLES else (info.key,)
                piles[str(standing)] = Pile(
                    pile.objects + 1, pile.size_bytes + info.size_bytes, (*pile.examples, *more)
                )
        return piles


def note_names(manifest: Manifest, names: Names, newest: Commit) -> None:
    """Note what a commit names, and what the earlier commits of its shard name."""
    names.add_commit(newest)
    for generation in range(newest.generation):
        try:
            names.add_commit(manifest.commit(newest.shard_id, generation))
        except MissingObjectError:
            continue
        except ProtocolError:
            names.add_unreadable(newest.shard_id)


def _drift(planned: Iterable[Shard], listed: Iterable[Shard]) -> Drift:
    found = compare(planned, listed)
    return Drift(
        new=tuple(shard.key for shard in found.new),
        changed=tuple(before.key for before, _ in found.changed),
        missing=tuple(shard.key for shard in found.missing),
    )
