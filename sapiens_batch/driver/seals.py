"""Complete shards are sealed by Ray tasks, a few at a time, while labeling goes on.

A seal takes no CPU of Ray's, so that it need not wait until a task that reads has ended. Sealing
may be repeated, so a task that dies is begun anew. What a result means is left to who asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import ray

from sapiens_batch.protocol.documents import Counts
from sapiens_batch.protocol.seal import SealJob, seal_shard
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.stages.flow import Failure, failure_of

MAX_SEALS = 6
"""At a time: sealing waits for storage, not for the CPU."""
_RETRIES = 3


@dataclass(frozen=True, slots=True)
class Sealed:
    """What became of a shard's sealing.

    Attributes:
        todo: What was sealed.
        counts: Samples of the commit, or None where there is none.
        failure: Why there is none.
    """

    todo: ShardTodo
    counts: Counts | None
    failure: Failure | None = None


class Seals:
    """The seals of one run that wait or are under way.

    Args:
        job: The job.
    """

    def __init__(self, job: SealJob) -> None:
        self._job = ray.put(job)
        self._waiting: deque[tuple[ShardTodo, Collection[int]]] = deque()
        self._running: dict[Any, ShardTodo] = {}

    def add(self, todo: ShardTodo, chunks: Collection[int]) -> None:
        """Seal a shard when it is its turn.

        Args:
            todo: The shard and the generation.
            chunks: The chunks that its commit stands on.
        """
        self._waiting.append((todo, chunks))
        self._start()

    @property
    def num_left(self) -> int:
        """Seals that are not done."""
        return len(self._waiting) + len(self._running)

    def done(self, *, timeout_s: float = 0.0) -> list[Sealed]:
        """What is done since the last call, without waiting longer than that for the first."""
        if not self._running:
            return []
        ready, _ = ray.wait(list(self._running), num_returns=1, timeout=timeout_s)
        found = [_result(ref, self._running.pop(ref)) for ref in ready]
        self._start()
        return found

    def _start(self) -> None:
        while self._waiting and len(self._running) < MAX_SEALS:
            todo, chunks = self._waiting.popleft()
            self._running[_seal.remote(self._job, todo, chunks)] = todo


def _result(ref: Any, todo: ShardTodo) -> Sealed:
    try:
        sealed: Sealed = ray.get(ref)
    except Exception as error:  # its worker died more often than it is begun anew
        failure = failure_of(error, todo.shard.shard_id, None, "seal")
        return Sealed(todo, None, failure)
    return sealed


@ray.remote(num_cpus=0, max_retries=_RETRIES)
def _seal(job: SealJob, todo: ShardTodo, chunks: Collection[int]) -> Sealed:
    try:
        commit = seal_shard(job, todo, chunks)
    except Exception as error:  # the worker boundary: becomes data for the driver
        failure = failure_of(error, todo.shard.shard_id, None, "seal")
        return Sealed(todo, None, failure)
    return Sealed(todo, commit.counts)
