"""The passes of a run: the graph over what is left, again and again while that may help.

What a pass does not bring, the next one tries. Silence is an error: a pass that brings less than it
was sent, and no reason, ends with the first exception that Ray Data passed over.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict

from sapiens_batch.driver import graph
from sapiens_batch.driver.cluster import look_at_cluster, wait_for_gpu
from sapiens_batch.driver.follow import Follower
from sapiens_batch.driver.sizing import Sizing, decide
from sapiens_batch.errors import SapiensBatchError
from sapiens_batch.protocol.journal import InFlightLog
from sapiens_batch.protocol.runs import attempts_of_dead_runs, last_run_died
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.stages.attempts import Attempts, Care, RemoteAttempts
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.flow import Failure, Outcome, failure_of
from sapiens_batch.stages.view_labeler import LoadLabeler
from sapiens_batch.storage import Store

CAREFUL_S = 300.0
"""Time after the start of a run in which it writes down what it begins, where the run before it
died: what ends a driver is met again early, because what was done before it is skipped."""


def count_attempts(store: Store, run: str) -> RemoteAttempts:
    """Start to count the attempts of a run, on top of what runs that died had in flight."""
    of_dead_runs = attempts_of_dead_runs(store, besides=run)
    is_careful = last_run_died(store, besides=run)
    care = Care(InFlightLog(store, run), time.time() + CAREFUL_S) if is_careful else None
    return RemoteAttempts.start(run, of_dead_runs, care)


class Passes:
    """Passes over what a follower says is left.

    Args:
        context: The job.
        follower: Takes in what comes.
        load: Loads the models.
        attempts: Counts attempts, for the whole run.
        is_over: Whether the run is to stop, asked after every chunk.
    """

    def __init__(
        self,
        context: JobContext,
        follower: Follower,
        load: LoadLabeler,
        attempts: Attempts,
        is_over: Callable[[], bool],
    ) -> None:
        self._context = context
        self._follower = follower
        self._load = load
        self._attempts = attempts
        self._is_over = is_over

    def run(self) -> None:
        """Label and seal until nothing is left, or trying again does not help.

        After `max_attempts` failures a chunk is isolated, which takes one pass more. A pass that
        the cluster cut short does not count while passes bring something.
        """
        follower = self._follower
        graph.configure_ray_data(self._context.spec.runtime.no_progress_timeout_s)
        left = self._context.spec.errors.max_attempts + 1
        number = 0
        while left:
            number += 1
            follower.failures.clear()
            follower.seal_complete()
            cut_short, num_new = False, 0
            for wave in follower.waves():
                num_before = follower.num_done
                cut_short |= self._run_wave(wave)
                num_new += follower.num_done - num_before
                if self._is_over():
                    return
            follower.settle()
            if not follower.has_open_shards:
                return
            if follower.failures and all(one.in_setup for one in follower.failures):
                return  # trying again mends nothing
            follower.report_failures(number)
            left -= not (cut_short and num_new)

    def _run_wave(self, wave: Sequence[ShardTodo]) -> bool:
        """Run one graph; True when the cluster cut it short."""
        sizing = self._size()
        dataset = graph.build(self._context, wave, sizing, self._load, self._attempts)
        with _passed_over() as exceptions:
            cut_short = self._follow(graph.outcomes(dataset))
        if not cut_short and not self._is_over() and (count := self._follower.unexplained(wave)):
            self._follower.fail(_silent(count, exceptions))
        return cut_short

    def _size(self) -> Sizing:
        """Ceilings for the next graph; waits until there is a device for it."""
        runtime, physical_cpus = self._context.spec.runtime, os.cpu_count() or 1
        cluster = look_at_cluster()
        sizing = decide(cluster, runtime, physical_cpus=physical_cpus)
        if sizing.gpus_per_actor:
            wait_for_gpu(self._follower.say)
            cluster = look_at_cluster()
            sizing = decide(cluster, runtime, physical_cpus=physical_cpus)
        has = {"cpus": cluster.num_cpus, "gpus": cluster.num_gpus}
        self._follower.note("sizing", cluster=has, **asdict(sizing))
        return sizing

    def _follow(self, found: Generator[Outcome]) -> bool:
        """Take in what a graph yields; True when the cluster cut it short."""
        with contextlib.closing(found):
            try:
                for outcome in found:
                    self._follower.accept(outcome)
                    if self._is_over():
                        return False
            except SapiensBatchError:
                raise
            except Exception as error:  # the cluster failed: the next pass takes up what is done
                self._follower.fail(failure_of(error, "", None, "graph"))
                return True
        return False


def _silent(num_shards: int, exceptions: Sequence[Exception]) -> Failure:
    error = exceptions[0] if exceptions else RuntimeError("no exception was logged")
    failure = failure_of(error, "", None, "graph")
    message = f"{num_shards} shards did not give all their chunks and no reason: {failure.message}"
    return Failure("", None, "graph", message, failure.trace)


@contextlib.contextmanager
def _passed_over() -> Iterator[list[Exception]]:
    """The exceptions of workers that Ray Data logs and goes on without; the first few."""
    handler = _Keeper()
    logger = logging.getLogger("ray.data")
    logger.addHandler(handler)
    try:
        yield handler.exceptions
    finally:
        logger.removeHandler(handler)


class _Keeper(logging.Handler):
    """Keeps the exceptions of log records."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.exceptions: list[Exception] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, Exception) and len(self.exceptions) < _KEPT_EXCEPTIONS:
            self.exceptions.append(error)


_KEPT_EXCEPTIONS = 8
