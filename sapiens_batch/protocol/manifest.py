"""The manifest of a job: its document, plan, receipts, commits and orders, as found in a store.

Reads and decides; labeling and sealing is left to the pipeline. What is done follows from listed
keys, so that opening a job costs three listings. The only objects that are written here are the job
document and relabel orders, both create-only; nothing changes an object (I2, I6).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from sapiens_batch.errors import DriftError, ProtocolError, StorageError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.documents import now
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.protocol.orders import Cause, RelabelOrder, choose, ordered_chunks
from sapiens_batch.protocol.plan import PlanDocument, list_plans, read_plan
from sapiens_batch.protocol.receipt import Receipt
from sapiens_batch.protocol.snapshot import CommitSummary, read_summaries
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.records import Shard
from sapiens_batch.storage import MissingObjectError, Store

# Object stores answer in tens of milliseconds whatever the load; 16 requests in flight keep a
# driver below the rates at which they push back.
READ_THREADS = 16

Kind = TypeVar("Kind", Commit, Receipt, RelabelOrder)


class Manifest:
    """One job directory.

    Args:
        store: Where it is; used with no more than it was probed to do when the job was started.
        job: Its document.
    """

    def __init__(self, store: Store, job: JobDocument) -> None:
        self.store = store.adapted(job.probed) if job.probed else store
        self.job = job

    @classmethod
    def open(cls, store: Store) -> Manifest:
        """Open the job of a store.

        Raises:
            StorageError: There is no job, or it cannot be read.
            ProtocolError: `job.json` is damaged or of a newer version.
        """
        try:
            data = store.read(keys.JOB)
        except MissingObjectError as error:
            raise StorageError(
                f"{store.uri} is not a job directory: it has no {keys.JOB}; check the address, or "
                "start the job with `run`"
            ) from error
        return cls(store, JobDocument.from_bytes(data, keys.JOB))

    @classmethod
    def create(cls, store: Store, job: JobDocument) -> Manifest:
        """Start a job, or open the one that is there if it labels the same.

        Raises:
            DriftError: The store holds a job with another spec digest.
            StorageError: The store refused.
        """
        created = cls(store, job)
        if created.store.create(keys.JOB, job.to_bytes()):
            return created
        found = cls.open(store)
        if found.job.spec_digest != job.spec_digest:
            raise DriftError(
                f"{store.uri} holds job {found.job.name!r} with spec digest "
                f"{found.job.spec_digest[:12]}, this spec has {job.spec_digest[:12]}; use another "
                "output or the job's own spec"
            )
        return found

    def plans(self) -> list[PlanDocument]:
        """The plans of the job, in order; empty before the first."""
        return list_plans(self.store)

    def shards(self) -> Iterator[Shard]:
        """Every planned shard, in plan order."""
        for document in self.plans():
            yield from read_plan(self.store, document)

    def generations(self, folder: str = keys.COMMITS) -> dict[str, int]:
        """Newest generation of every visible shard (I2), from the keys of commits alone."""
        newest: dict[str, int] = {}
        for info in self.store.list(folder):
            if (found := keys.parse_commit(info.key)) is not None:
                shard_id, generation = found
                newest[shard_id] = max(generation, newest.get(shard_id, 0))
        return newest

    def committed_ids(self) -> set[str]:
        """Ids of visible shards (I2), from the keys of commits alone."""
        return set(self.generations())

    def commit(self, shard_id: str, generation: int | None = None) -> Commit:
        """A commit of one shard, the newest unless a generation is given.

        Raises:
            MissingObjectError: The shard is not committed.
            ProtocolError: The commit is damaged or belongs to another job or shard.
        """
        if generation is None:
            folder = f"{keys.COMMITS}{keys.prefix(shard_id)}/"
            generation = self.generations(folder).get(shard_id, 0)
        return self._read(Commit, keys.commit(shard_id, generation), shard_id)

    def commits(self) -> Iterator[Commit]:
        """The newest commit of every visible shard, by shard id.

        Raises:
            ProtocolError: As for `commit`.
        """
        yield from self.read_commits(self.generations())

    def read_commits(self, generations: Mapping[str, int]) -> Iterator[Commit]:
        """The commits of the given generations, by shard id.

        Raises:
            ProtocolError: As for `commit`.
        """
        wanted = ((keys.commit(*one), one[0]) for one in sorted(generations.items()))
        yield from self._read_many(Commit, wanted)

    def summaries(self) -> Iterator[CommitSummary]:
        """The newest commit of every visible shard in short, by shard id, from snapshots.

        Raises:
            ProtocolError: As for `commit`.
        """
        return iter(read_summaries(self).values())

    def receipts(self, shard_id: str, generation: int = 0) -> list[Receipt]:
        """The receipts of one generation of a shard, by chunk.

        Raises:
            ProtocolError: A receipt is damaged or belongs elsewhere.
        """
        listed = (info.key for info in self.store.list(keys.receipts(shard_id, generation)))
        found = [(key, shard_id) for key in listed if keys.parse_receipt(key) is not None]
        return list(self._read_many(Receipt, found))

    def relabel(
        self, shard_id: str, samples: Iterable[int] | None, *, cause: Cause, message: str = ""
    ) -> RelabelOrder:
        """Order samples of a shard to be labeled again by the next run.

        An open order that covers the samples already is kept and returned.

        Args:
            shard_id: A planned shard; a committed one unless all samples are ordered.
            samples: Their indices; None for all, whatever became of earlier generations.
            cause: Who asks.
            message: Why, for people.

        Raises:
            StorageError: The store refused.
        """
        wanted = None if samples is None else tuple(sorted(set(samples)))
        folder = f"{keys.prefix(shard_id)}/"
        while True:
            numbers = self._order_numbers(keys.RELABEL + folder).get(shard_id, [])
            committed = self.generations(keys.COMMITS + folder)
            for order in self._open_orders({shard_id: numbers}, committed):
                if order.covers(wanted):
                    return order
            order = RelabelOrder(
                shard_id=shard_id,
                generation=max(numbers, default=0) + 1,
                cause=cause,
                message=message,
                samples=wanted,
                write_id=uuid.uuid4().hex,
                created=now(),
            )
            key = keys.relabel_order(shard_id, order.generation)
            if self.store.create(key, order.to_bytes()):
                return order

    def open_orders(self, committed: Mapping[str, int] | None = None) -> dict[str, RelabelOrder]:
        """The order to carry out next for every shard that has an open one.

        Args:
            committed: What `generations` found, where it is known.

        Raises:
            StorageError: The store cannot be read.
        """
        found: dict[str, list[RelabelOrder]] = {}
        numbers = self._order_numbers(keys.RELABEL)
        if numbers and committed is None:
            committed = self.generations()
        for order in self._open_orders(numbers, committed or {}):
            found.setdefault(order.shard_id, []).append(order)
        chosen = {shard_id: choose(orders) for shard_id, orders in found.items()}
        return {shard_id: order for shard_id, order in chosen.items() if order is not None}

    def todo(self) -> list[ShardTodo]:
        """Planned shards with samples to label, in plan order, with the chunks that are done.

        Raises:
            ProtocolError: A plan, or a commit that an order builds on, is damaged.
        """
        committed = self.generations()
        orders = self.open_orders(committed)
        closed = committed.keys() - orders.keys()
        done = done_chunks((info.key for info in self.store.list(keys.RECEIPTS)), closed)
        found = []
        for shard in self.shards():
            order = orders.get(shard.shard_id)
            if order is None and shard.shard_id in committed:
                continue
            if order is None or (order.samples is not None and shard.shard_id not in committed):
                labeled = done.get((shard.shard_id, 0), frozenset())
                found.append(ShardTodo(shard, labeled))
            else:
                labeled = done.get((shard.shard_id, order.generation), frozenset())
                found.append(self._ordered(shard, order, labeled, committed))
        return found

    def _ordered(
        self,
        shard: Shard,
        order: RelabelOrder,
        labeled: frozenset[int],
        committed: Mapping[str, int],
    ) -> ShardTodo:
        """What an order leaves to do."""
        if order.samples is None:
            return ShardTodo(shard, labeled, order.generation)
        base = self.commit(shard.shard_id, committed[shard.shard_id])
        shard_rows = max(1, base.chunks[0].stop)
        untouched = frozenset(range(len(base.chunks))) - ordered_chunks(order.samples, shard_rows)
        return ShardTodo(shard, labeled | untouched, order.generation, frozenset(order.samples))

    def _order_numbers(self, folder: str) -> dict[str, list[int]]:
        """Generations that were ordered, by shard."""
        found: dict[str, list[int]] = {}
        for info in self.store.list(folder):
            if (parsed := keys.parse_relabel_order(info.key)) is not None:
                found.setdefault(parsed[0], []).append(parsed[1])
        return found

    def _open_orders(
        self, ordered: Mapping[str, Iterable[int]], committed: Mapping[str, int]
    ) -> Iterator[RelabelOrder]:
        """Those of the given orders that no commit has carried out or passed by.

        One that cannot be read is taken for an order of all samples, which contains what it was.
        """
        for shard_id, generations in ordered.items():
            for generation in generations:
                if generation > committed.get(shard_id, 0):
                    key = keys.relabel_order(shard_id, generation)
                    try:
                        yield self._read(RelabelOrder, key, shard_id)
                    except ProtocolError as error:
                        yield RelabelOrder(
                            shard_id=shard_id,
                            generation=generation,
                            cause="repair",
                            message=str(error),
                            samples=None,
                            write_id="0" * 32,
                            created=now(),
                        )

    def _read(self, kind: type[Kind], key: str, shard_id: str) -> Kind:
        document = kind.from_bytes(self.store.read(key), key)
        if document.shard_id != shard_id:
            raise ProtocolError(f"{key}: names shard {document.shard_id}; run `verify`")
        named = keys.parse(key)
        if named is not None and document.generation != named.generation:
            raise ProtocolError(f"{key}: names generation {document.generation}; run `verify`")
        if isinstance(document, Commit) and document.spec_digest != self.job.spec_digest:
            raise ProtocolError(
                f"{key}: spec digest {document.spec_digest[:12]} is not the job's "
                f"{self.job.spec_digest[:12]}; two jobs wrote to this directory, run `verify`"
            )
        return document

    def _read_many(self, kind: type[Kind], wanted: Iterable[tuple[str, str]]) -> Iterator[Kind]:
        """Read documents in order, some at a time so that memory stays bounded."""
        iterator = iter(wanted)
        with ThreadPoolExecutor(READ_THREADS) as pool:
            while batch := list(islice(iterator, READ_THREADS * 16)):
                yield from pool.map(lambda one: self._read(kind, one[0], one[1]), batch)


def done_chunks(
    receipt_keys: Iterable[str], closed: Collection[str]
) -> dict[tuple[str, int], frozenset[int]]:
    """Chunks with a receipt, by shard and generation.

    Args:
        receipt_keys: Keys below `receipts/`; others are skipped.
        closed: Shard ids to leave out.
    """
    found: dict[tuple[str, int], set[int]] = {}
    for key in receipt_keys:
        parsed = keys.parse_receipt(key)
        if parsed is not None and parsed[0] not in closed:
            found.setdefault((parsed[0], parsed[1]), set()).add(parsed[2])
    done: dict[tuple[str, int], frozenset[int]] = {}
    while found:  # sets go as frozensets come: a million chunks take 70 MB in either
        place, chunks = found.popitem()
        done[place] = frozenset(chunks)
    return done
