"""How often a chunk, or the reading of a span, was begun and never came through.

Ray hands what ended its worker to the next worker without limit, which is right for nodes that
leave and endless for a chunk that kills. So every beginning is counted, in one actor of the run on
the driver's node, and what came through is forgotten. The count decides only how something is
worked on: with others, alone, or isolated; labels are the same. Nothing is written to the store
but, in the first minutes after a run that died, what is about to be begun: a chunk that takes its
driver with it is found there by the next run.

Isolated work can end its worker as well, for want of memory. That is counted apart and for this
run alone: `max_attempts` of them, and the chunk or span fails for the rest of the run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sapiens_batch.errors import StorageError
from sapiens_batch.protocol.journal import InFlightLog, Place
from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.protocol.todo import WHOLE_SHARD, ShardTodo

_THREADS = 4
"""Calls that the actor answers at a time; in careful minutes beginnings wait for the store."""

_LOOK_TIMEOUT_S = 5.0
"""A journal that does not see what is in flight goes without."""

_log = logging.getLogger(__name__)


class SuspectError(Exception):
    """A chunk used up its attempts: the next pass hands it on undecoded, to be isolated."""


class IsolationError(Exception):
    """A chunk or span ended its workers in isolation as well."""


class Work(NamedTuple):
    """What is attempted: a chunk, or the reading of a span where `chunk` is None."""

    shard_id: str
    generation: int
    chunk: int | None
    span: tuple[int, int] = WHOLE_SHARD

    @property
    def place(self) -> Place:
        """What a journal says of it: runs differ in how they cut shards into spans."""
        return self[:3]


def describe(header: ChunkHeader) -> str:
    """A chunk in words, for messages."""
    where = f"(samples {header.start} to {header.stop - 1})"
    return f"chunk {header.index} of shard {header.shard_id} {where}"


def chunk_work(header: ChunkHeader) -> Work:
    """Labeling a chunk, whoever read it."""
    return Work(header.shard_id, header.generation, header.index)


def reading_work(todo: ShardTodo) -> Work:
    """Reading a span."""
    return Work(todo.shard.shard_id, todo.generation, None, todo.span)


class Attempts(Protocol):
    """What the stages ask: the counter itself, or the actor that holds it."""

    def begin(self, work: Work, ended: Iterable[Work] = ()) -> int:
        """Count a beginning; returns how many before it never came through.

        Args:
            work: What is begun.
            ended: What came through since the last call.
        """
        ...

    def begin_isolated(self, work: Work, limit: int) -> int:
        """The same for isolated work, of this run alone; what reached the limit counts no more."""
        ...

    def end(self, work: Work) -> None:
        """Forget what came through, or ended in order."""
        ...

    def excuse(self, work: Work) -> None:
        """Take back one beginning, which does not count against the work."""
        ...

    def end_isolated(self, work: Work) -> None:
        """Forget the isolated beginnings of what did not end its worker."""
        ...


@dataclass(frozen=True, slots=True)
class Care:
    """Notes what is begun in the first minutes of a run, where the one before it died. Picklable.

    Attributes:
        log: Where.
        until_s: Unix time from which on what the driver's journal says is enough.
    """

    log: InFlightLog
    until_s: float

    def note(self, unfinished: Iterable[Work]) -> None:
        """Store what never came through so far, while it is time and the store lets us."""
        now_s = time.time()
        if now_s >= self.until_s:
            return
        try:
            self.log.write([work.place for work in unfinished], now_s)
        except StorageError as error:
            _log.warning("what is begun cannot be noted: %s", error)


class AttemptCounter:
    """The counts of one run.

    Args:
        of_dead_runs: How often earlier runs died with a place in flight.
        care: Notes what is begun before `begin` answers, one call after the other so that the last
            note is the newest; None where a run need not be careful.
    """

    def __init__(
        self, of_dead_runs: Mapping[Place, int] | None = None, care: Care | None = None
    ) -> None:
        self._of_dead_runs = dict(of_dead_runs or {})
        self._care = care
        self._unfinished: Counter[Work] = Counter()
        self._isolated: Counter[Work] = Counter()
        self._lock = threading.Lock()
        self._noting = threading.Lock()

    def begin(self, work: Work, ended: Iterable[Work] = ()) -> int:
        """See `Attempts.begin`."""
        with self._lock:
            for one in ended:
                self._forget(one)
            before = self._unfinished[work] + self._of_dead_runs.get(work.place, 0)
            self._unfinished[work] += 1
        if self._care is not None:
            with self._noting:
                self._care.note(self.unfinished())
        return before

    def begin_isolated(self, work: Work, limit: int) -> int:
        """See `Attempts.begin_isolated`."""
        with self._lock:
            before = self._isolated[work]
            self._isolated[work] = min(limit, before + 1)
        return before

    def end(self, work: Work) -> None:
        """See `Attempts.end`."""
        with self._lock:
            self._forget(work)

    def excuse(self, work: Work) -> None:
        """See `Attempts.excuse`."""
        with self._lock:
            self._unfinished[work] -= 1
            if self._unfinished[work] <= 0:
                del self._unfinished[work]

    def end_isolated(self, work: Work) -> None:
        """See `Attempts.end_isolated`."""
        with self._lock:
            del self._isolated[work]

    def unfinished(self) -> list[Work]:
        """What was begun and did not come through so far."""
        with self._lock:
            return list(self._unfinished)

    def _forget(self, work: Work) -> None:
        del self._unfinished[work]
        self._of_dead_runs.pop(work.place, None)


@dataclass(frozen=True, slots=True)
class RemoteAttempts:
    """The counter in its actor. Picklable.

    Attributes:
        actor: Its handle.
    """

    actor: Any

    @classmethod
    def start(
        cls, run: str, of_dead_runs: Mapping[Place, int], care: Care | None
    ) -> RemoteAttempts:
        """Start the actor beside the driver; it ends with the driver.

        Args:
            run: Id of the run, for who looks at the cluster.
            of_dead_runs: See `AttemptCounter`.
            care: See `AttemptCounter`.
        """
        node = ray.get_runtime_context().get_node_id()
        kind: Any = ray.remote(AttemptCounter)
        actor = kind.options(
            name=f"attempts-{run}",
            num_cpus=0,
            max_concurrency=_THREADS,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        ).remote(of_dead_runs, care)
        return cls(actor)

    def begin(self, work: Work, ended: Iterable[Work] = ()) -> int:
        """See `Attempts.begin`."""
        before: int = self._ask("begin", work, tuple(ended))
        return before

    def begin_isolated(self, work: Work, limit: int) -> int:
        """See `Attempts.begin_isolated`."""
        before: int = self._ask("begin_isolated", work, limit)
        return before

    def end(self, work: Work) -> None:
        """See `Attempts.end`."""
        self._ask("end", work)

    def excuse(self, work: Work) -> None:
        """See `Attempts.excuse`."""
        self._ask("excuse", work)

    def end_isolated(self, work: Work) -> None:
        """See `Attempts.end_isolated`."""
        self._ask("end_isolated", work)

    def unfinished(self) -> list[Work]:
        """See `AttemptCounter.unfinished`."""
        found: list[Work] = ray.get(self.actor.unfinished.remote(), timeout=_LOOK_TIMEOUT_S)
        return found

    def _ask(self, method: str, *arguments: object) -> Any:
        return ray.get(getattr(self.actor, method).remote(*arguments))
