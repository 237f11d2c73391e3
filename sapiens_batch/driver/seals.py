"""Complete shards are sealed by an actor beside the driver, while labeling goes on.

It takes no CPU of Ray's, so that no seal waits until a task that reads has ended. It is an actor
because Ray ends a worker that was idle for a second: each seal of a task would start another one,
which costs a second of CPU where the seal costs 20 ms. Sealing may be repeated, so what dies is
begun anew. What a result means is left to who asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sapiens_batch.protocol.documents import Counts
from sapiens_batch.protocol.seal import SealJob, seal_shard
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.stages.flow import Failure, failure_of

MAX_SEALS = 6
"""At a time: sealing waits for storage, not for the CPU."""
_RETRIES = 3
"""Of a seal whose actor died."""


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
        self._job = job
        self._actor: Any = None
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
            if self._actor is None:
                self._actor = _sealer(self._job)
            todo, chunks = self._waiting.popleft()
            self._running[self._actor.seal.remote(todo, chunks)] = todo


def _sealer(job: SealJob) -> Any:
    kind: Any = ray.remote(_Sealer)
    node = ray.get_runtime_context().get_node_id()
    return kind.options(
        num_cpus=0,
        max_concurrency=MAX_SEALS,
        max_restarts=-1,
        max_task_retries=_RETRIES,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
    ).remote(job)


def _result(ref: Any, todo: ShardTodo) -> Sealed:
    try:
        sealed: Sealed = ray.get(ref)
    except Exception as error:  # its actor died more often than it is begun anew
        failure = failure_of(error, todo.shard.shard_id, None, "seal")
        return Sealed(todo, None, failure)
    return sealed


class _Sealer:
    """Seals shards of one job; called from several threads."""

    def __init__(self, job: SealJob) -> None:
        self._job = job

    def seal(self, todo: ShardTodo, chunks: Collection[int]) -> Sealed:
        try:
            commit = seal_shard(self._job, todo, chunks)
        except Exception as error:  # the worker boundary: becomes data for the driver
            failure = failure_of(error, todo.shard.shard_id, None, "seal")
            return Sealed(todo, None, failure)
        return Sealed(todo, commit.counts)
