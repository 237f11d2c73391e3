"""The manifest of a job: its document, plan, commits and orders, as found in a store.

Reads and decides; labeling and sealing is left to the stages. What is done follows from listed
keys, so that opening a job costs three listings. What is listed is there, but what is not listed is
not thereby absent (I9): plans are read by number, orders and commits are looked at by name where
something ends or is lost by them, and what this process wrote it knows. The only objects that are
written here are the job document and relabel orders, both create-only (I2, I6).
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
from sapiens_batch.protocol.receipt import Receipt, read_receipt
from sapiens_batch.protocol.snapshot import CommitSummary, read_summaries
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.records import Shard
from sapiens_batch.storage import MissingObjectError, Store

# Object stores answer in tens of milliseconds whatever the load; 16 requests in flight keep a
# driver below the rates at which they push back.
READ_THREADS = 16

Kind = TypeVar("Kind", Commit, RelabelOrder)


class Manifest:
    """One job directory.

    Args:
        store: Where it is; used with no more than it was probed to do when the job was started.
        job: Its document.
    """

    def __init__(self, store: Store, job: JobDocument) -> None:
        self.store = store.adapted(job.probed) if job.probed else store
        self.job = job
        self._plans: list[PlanDocument] = []
        self._committed: dict[str, int] = {}
        self._ordered: dict[str, int] = {}

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
        """The plans of the job, in order; empty before the first.

        What this process once read it keeps: a plan that is lost since ends no job (I9).
        """
        self._plans = list_plans(self.store, self._plans)
        return list(self._plans)

    def shards(self) -> Iterator[Shard]:
        """Every planned shard, in plan order."""
        for document in self.plans():
            yield from read_plan(self.store, document)

    def note_commit(self, shard_id: str, generation: int) -> None:
        """Note a commit that this run made or found, listed or not (I9)."""
        newest = self._committed.get(shard_id, -1)
        self._committed[shard_id] = max(generation, newest)

    def generations(self, folder: str = keys.COMMITS) -> dict[str, int]:
        """Newest known generation of every visible shard (I2).

        From the keys of commits alone, and from what was noted.
        """
        newest: dict[str, int] = {}
        for info in self.store.list(folder):
            if (found := keys.parse_commit(info.key)) is not None:
                shard_id, generation = found
                newest[shard_id] = max(generation, newest.get(shard_id, 0))
        for shard_id, generation in list(self._committed.items()):
            newest[shard_id] = max(generation, newest.get(shard_id, 0))
        return newest

    def newest_generation(self, shard_id: str, *, listed: int = -1) -> int:
        """Newest committed generation of a shard, looked at by name; -1 where there is none (I9).

        Args:
            shard_id: The shard.
            listed: A generation that is known to be committed.
        """
        newest = max(listed, self._committed.get(shard_id, -1))
        if newest < 0 and self.store.exists(keys.commit(shard_id)):
            newest = 0
        for number in range(newest + 1, self._last_order(shard_id, max(newest, 0)) + 1):
            if self.store.exists(keys.commit(shard_id, number)):
                newest = number
        return newest

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
        """The receipts of one generation of a shard that are listed, by chunk.

        Raises:
            DamagedReceiptError: A receipt is damaged or belongs elsewhere.
        """
        listed = (info.key for info in self.store.list(keys.receipts(shard_id, generation)))
        found = [parsed for key in listed if (parsed := keys.parse_receipt(key)) is not None]
        with ThreadPoolExecutor(READ_THREADS) as pool:
            read = pool.map(
                lambda one: read_receipt(self.store, shard_id, one[2], generation), found
            )
            return [receipt for receipt, _ in read]

    def relabel(
        self,
        shard_id: str,
        samples: Iterable[int] | None,
        *,
        cause: Cause,
        message: str = "",
        above: int = 0,
    ) -> RelabelOrder:
        """Order samples of a shard to be labeled again by the next run.

        An open order that covers the samples already is kept and returned.

        Args:
            shard_id: A planned shard; a committed one unless all samples are ordered.
            samples: Their indices; None for all, whatever became of earlier generations.
            cause: Who asks.
            message: Why, for people.
            above: A generation of which something is damaged: its order does not mend that.

        Raises:
            StorageError: The store refused.
        """
        wanted = None if samples is None else tuple(sorted(set(samples)))
        folder = f"{keys.prefix(shard_id)}/"
        listed = self.generations(keys.COMMITS + folder).get(shard_id, -1)
        known = max(above, listed, self._known_orders(keys.RELABEL + folder).get(shard_id, 0))
        while True:
            known = last = self._last_order(shard_id, known)
            newest = self.newest_generation(shard_id, listed=listed)
            for order in self._open_orders(shard_id, max(newest, above), last):
                if order.covers(wanted):
                    return order
            order = RelabelOrder(
                shard_id=shard_id,
                generation=last + 1,
                cause=cause,
                message=message,
                samples=wanted,
                write_id=uuid.uuid4().hex,
                created=now(),
            )
            key = keys.relabel_order(shard_id, order.generation)
            created = self.store.create(key, order.to_bytes())
            self._ordered[shard_id] = order.generation
            if created:
                return order

    def open_orders(self, committed: Mapping[str, int] | None = None) -> dict[str, RelabelOrder]:
        """The order to carry out next for every shard that has an open one.

        Args:
            committed: What `generations` found, where it is known.

        Raises:
            StorageError: The store cannot be read.
        """
        known = self._known_orders(keys.RELABEL)
        if known and committed is None:
            committed = self.generations()
        newest = {shard_id: (committed or {}).get(shard_id, -1) for shard_id in known}

        def look(shard_id: str) -> RelabelOrder | None:
            last = self._last_order(shard_id, known[shard_id])
            done = self.newest_generation(shard_id, listed=newest[shard_id])
            return choose(self._open_orders(shard_id, done, last))

        waiting = [shard_id for shard_id, last in known.items() if last > newest[shard_id]]
        with ThreadPoolExecutor(READ_THREADS) as pool:
            chosen = pool.map(look, waiting)
            return {order.shard_id: order for order in chosen if order is not None}

    def todo(self) -> list[ShardTodo]:
        """Planned shards with samples to label, in plan order, with the chunks that are done.

        Raises:
            ProtocolError: A plan, or a commit that an order builds on, is damaged.
        """
        committed = self.generations()
        orders = self.open_orders(committed)
        closed = committed.keys() - orders.keys()
        done = done_chunks((info.key for info in self.store.list(keys.RECEIPTS)), closed)
        bases = self._bases(orders.values(), committed)
        found = []
        for shard in self.shards():
            shard_id = shard.shard_id
            order = orders.get(shard_id)
            if order is not None and order.samples is not None and shard_id not in bases:
                order = None  # its first labels are missing, and come first
            if order is None and shard_id in committed:
                continue
            number = 0 if order is None else order.generation
            labeled = done.get((shard_id, number), frozenset())
            if order is None or order.samples is None:
                found.append(ShardTodo(shard, labeled, number))
            else:
                found.append(_of_order(shard, order, labeled, bases[shard_id]))
        return found

    def _bases(
        self, orders: Iterable[RelabelOrder], committed: Mapping[str, int]
    ) -> dict[str, Commit]:
        """What orders of some samples build on."""
        some = [one.shard_id for one in orders if one.samples is not None]
        newest = {one: self.newest_generation(one, listed=committed.get(one, -1)) for one in some}
        visible = {shard_id: number for shard_id, number in newest.items() if number >= 0}
        return {commit.shard_id: commit for commit in self.read_commits(visible)}

    def _known_orders(self, folder: str) -> dict[str, int]:
        """Number of the last known order of every shard that has one: listed, or our own."""
        known = dict(self._ordered)
        for info in self.store.list(folder):
            if (parsed := keys.parse_relabel_order(info.key)) is not None:
                known[parsed[0]] = max(parsed[1], known.get(parsed[0], 0))
        return known

    def _last_order(self, shard_id: str, known: int) -> int:
        """Number of the last order of a shard; they count up, and none is ever removed."""
        while self.store.exists(keys.relabel_order(shard_id, known + 1)):
            known += 1
        return known

    def _open_orders(self, shard_id: str, newest: int, last: int) -> list[RelabelOrder]:
        """Orders of a shard that no commit has carried out or passed by, looked at by name.

        One that cannot be read is taken for an order of all samples, which contains what it was.

        Args:
            shard_id: The shard.
            newest: Its newest committed generation.
            last: Number of its last order.
        """
        found = []
        for generation in range(max(newest, 0) + 1, last + 1):
            key = keys.relabel_order(shard_id, generation)
            try:
                found.append(self._read(RelabelOrder, key, shard_id))
            except MissingObjectError:
                continue
            except ProtocolError as error:
                found.append(
                    RelabelOrder(
                        shard_id=shard_id,
                        generation=generation,
                        cause="repair",
                        message=str(error),
                        samples=None,
                        write_id="0" * 32,
                        created=now(),
                    )
                )
        return found

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


def _of_order(
    shard: Shard, order: RelabelOrder, labeled: frozenset[int], base: Commit
) -> ShardTodo:
    """What an order of some samples leaves to do."""
    samples = frozenset(order.samples or ())
    shard_rows = max(1, base.chunks[0].stop)
    untouched = frozenset(range(len(base.chunks))) - ordered_chunks(samples, shard_rows)
    return ShardTodo(shard, labeled | untouched, order.generation, samples)


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
