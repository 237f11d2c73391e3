"""Run a job from its spec to its commits; running the same spec again resumes it.

The order of things is here and nowhere else: resolve, open, take up what is done, run the graph
over the rest, seal, and compare plan and commits at the end.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from sapiens_batch.driver.budget import over_budget
from sapiens_batch.driver.follow import Driver
from sapiens_batch.driver.lease import sole_driver
from sapiens_batch.driver.open_job import open_job, resolve
from sapiens_batch.driver.partition import WHOLE, Partition
from sapiens_batch.driver.progress import Progress, Reporter
from sapiens_batch.driver.session import StopRequested, ray_session, stop_signals
from sapiens_batch.driver.sizing import decide
from sapiens_batch.errors import SapiensBatchError, StorageError
from sapiens_batch.protocol.commit import total_reasons
from sapiens_batch.protocol.documents import Counts
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.snapshot import CommitSummary, write_snapshot
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.records import Problem
from sapiens_batch.spec.job import JobSpec
from sapiens_batch.stages.attempts import AttemptLedger
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.flow import Failure, Outcome, failure_of
from sapiens_batch.stages.view_labeler import LoadLabeler, load_labeler

SHOWN_PROBLEMS = 5


@dataclass(frozen=True, slots=True)
class JobSummary:
    """How a run ended.

    Attributes:
        name: The job's name.
        output: Address of the job directory.
        num_shards: Planned shards, of the part that was run.
        committed_shards: Visible shards of that part.
        waiting_shards: Visible shards with samples that are still to be labeled again.
        counts: Samples of visible shards by status, and persons.
        reasons: Quarantined samples by reason.
        problems: (shard key, problem) of shards with damage that belongs to no sample, at most
            `SHOWN_PROBLEMS`.
        num_problems: How many there are.
        new_samples: Samples that this run labeled.
        new_shards: Shards that this run made visible for the first time.
        open_chunks: Labeled chunks of shards that are not visible yet, kept for the next run.
        elapsed_s: Seconds that this run took.
        stopped: What ended the run early: a signal, or empty.
        failures: What went wrong and was not mended by trying again.
        over_budget: Whether more samples were quarantined than the spec allows.
        demo: Whether the labels come from random demo weights.
    """

    name: str
    output: str
    num_shards: int
    committed_shards: int
    counts: Counts
    reasons: dict[str, int]
    problems: tuple[tuple[str, Problem], ...]
    num_problems: int
    new_samples: int
    new_shards: int
    open_chunks: int
    elapsed_s: float
    waiting_shards: int = 0
    stopped: str = ""
    failures: tuple[Failure, ...] = ()
    over_budget: bool = False
    demo: bool = False

    @property
    def complete(self) -> bool:
        """Whether every planned shard is visible, with nothing left to label again."""
        return self.committed_shards == self.num_shards and not self.waiting_shards

    @property
    def in_vain(self) -> bool:
        """Whether all is done and not one sample could be labeled, though there was something."""
        counts = self.counts
        tried = counts.quarantined or self.num_problems
        return self.complete and bool(tried) and not counts.ok and not counts.empty

    @property
    def in_setup(self) -> bool:
        """Whether the spec, the weights or an installation keeps the job from going on."""
        return any(failure.in_setup for failure in self.failures)

    @property
    def exit_code(self) -> int:
        """0 complete; 2 setup at fault; 4 over the error budget, or in vain; 5 incomplete."""
        if self.over_budget or self.in_vain:
            return 4
        if self.complete:
            return 0
        return 2 if self.in_setup else 5


def run_job(
    spec: JobSpec,
    reporter: Reporter,
    *,
    partition: Partition = WHOLE,
    load: LoadLabeler = load_labeler,
) -> JobSummary:
    """Run or resume a job until it is complete, stopped, over budget, or out of attempts.

    Args:
        spec: The job.
        reporter: Where to show progress.
        partition: Which part of the shards to work on.
        load: Loads the models.

    Raises:
        SapiensBatchError: The job could not be started; see `start`.
    """
    context, manifest = open_job(resolve(spec), reporter.message)
    return carry_out(context, manifest, reporter, partition=partition, load=load)


def carry_out(
    context: JobContext,
    manifest: Manifest,
    reporter: Reporter,
    *,
    partition: Partition = WHOLE,
    load: LoadLabeler = load_labeler,
) -> JobSummary:
    """Do what is left of an opened job; see `run_job`."""
    run = _Run(context, manifest, reporter, partition, load)
    with _single_driver(manifest, reporter) as lost:
        run.work(lost)
    return run.summary()


@contextlib.contextmanager
def _single_driver(manifest: Manifest, reporter: Reporter) -> Iterator[threading.Event]:
    """Keep other drivers away where the store cannot decide between them."""
    probed = manifest.job.probed
    if probed is None or probed.conditional_create:
        yield threading.Event()
        return
    reporter.message(
        f"warning: {manifest.store.uri} cannot create an object only if it is not there, so "
        "nothing decides between two drivers. This job takes a lease and refuses a second one."
    )
    with sole_driver(manifest.store) as lost:
        yield lost


class _Run:
    """One run of a job over one part of its shards."""

    def __init__(
        self,
        context: JobContext,
        manifest: Manifest,
        reporter: Reporter,
        partition: Partition,
        load: LoadLabeler,
    ) -> None:
        self._context = context
        self._manifest = manifest
        self._reporter = reporter
        self._partition = partition
        self._load = load
        sizes = {
            shard.shard_id: shard.size_bytes
            for shard in manifest.shards()
            if partition.owns(shard.shard_id)
        }
        self._sizes = sizes
        self._progress = Progress(num_shards=len(sizes), planned_bytes=sum(sizes.values()))
        self._num_visible = 0
        self._stopped = ""
        self._over_budget = False
        self._failures: tuple[Failure, ...] = ()

    def work(self, lost: threading.Event) -> None:
        """Label what is to do.

        Args:
            lost: Set when another driver has taken over the job.
        """
        todo = [one for one in self._manifest.todo() if one.shard.shard_id in self._sizes]
        wanted = {one.shard.shard_id for one in todo}
        visible: dict[str, Counts] = {}
        for shard in self._visible_shards():
            self._num_visible += 1
            self._progress.shard_done(self._sizes[shard.shard_id], shard.counts)
            if shard.shard_id in wanted:
                visible[shard.shard_id] = shard.counts
        if todo and not self._is_over_budget():
            driver = Driver(self._context, self._manifest, self._progress, self._reporter, visible)
            self._drive(driver, todo, lost)

    def _drive(self, driver: Driver, todo: Sequence[ShardTodo], lost: threading.Event) -> None:
        try:
            with stop_signals():
                driver.resume(todo)
                driver.settle()
                if driver.has_open_shards:
                    self._reporter.message("starting Ray")
                    self._run_passes(driver, lost)
                driver.settle()
        except StopRequested as signal:
            self._stopped = str(signal)
        finally:
            driver.close()
        write_snapshot(self._manifest)
        self._failures = tuple(driver.failures)

    def _run_passes(self, driver: Driver, lost: threading.Event) -> None:
        spec = self._context.spec
        with ray_session(spec.runtime) as cluster:
            # imported here: the session sets the environment that ray reads when it is imported
            from sapiens_batch.driver import graph

            graph.configure_ray_data(spec.runtime.no_progress_timeout_s)
            sizing = decide(cluster, spec.runtime, physical_cpus=os.cpu_count() or 1)
            ledger = AttemptLedger(self._context.store, spec.errors.max_attempts)
            # after `max_attempts` failures a chunk is isolated, which takes one more pass
            for attempt in range(1, spec.errors.max_attempts + 2):
                driver.failures.clear()
                driver.seal_complete()
                for wave in driver.waves():
                    dataset = graph.build(self._context, wave, sizing, self._load, ledger)
                    if not self._follow(driver, graph.outcomes(dataset), lost):
                        return
                driver.settle()
                if not driver.has_open_shards:
                    return
                if driver.failures and all(one.in_setup for one in driver.failures):
                    return  # trying again mends nothing
                self._report(driver.failures, attempt)

    def _follow(self, driver: Driver, found: Generator[Outcome], lost: threading.Event) -> bool:
        """Take in what a graph yields; False when the job is to stop."""
        with contextlib.closing(found):
            try:
                for outcome in found:
                    driver.accept(outcome)
                    if lost.is_set():
                        raise StorageError(
                            f"{self._context.store.uri}: another driver has taken over this job"
                        )
                    if self._is_over_budget():
                        return False
            except SapiensBatchError:
                raise
            except Exception as error:  # the cluster failed: the next pass takes up what is done
                driver.fail(failure_of(error, "", None, "graph"))
        return True

    def _is_over_budget(self) -> bool:
        errors = self._context.spec.errors
        self._over_budget = over_budget(self._progress.counts, errors, complete=False)
        return self._over_budget

    def _report(self, failures: Sequence[Failure], attempt: int) -> None:
        for failure in _distinct(failures):
            self._reporter.message(f"attempt {attempt}: {failure.stage} failed: {failure.message}")

    def _visible_shards(self) -> Iterator[CommitSummary]:
        return (one for one in self._manifest.summaries() if one.shard_id in self._sizes)

    def _open_chunks(self) -> int:
        todo = self._manifest.todo()
        return sum(len(one.done_chunks) for one in todo if one.shard.shard_id in self._sizes)

    def summary(self) -> JobSummary:
        """What the store says now; other drivers may have worked on it as well."""
        context, manifest = self._context, self._manifest
        shards = list(self._visible_shards())
        counts = sum((shard.counts for shard in shards), Counts())
        waiting = sum(shard_id in self._sizes for shard_id in manifest.open_orders())
        complete = len(shards) == len(self._sizes)
        problems = ((shard.shard_key, one) for shard in shards for one in shard.problems)
        return JobSummary(
            name=context.spec.name,
            output=context.store.uri,
            num_shards=len(self._sizes),
            committed_shards=len(shards),
            waiting_shards=waiting,
            counts=counts,
            reasons=total_reasons(shards),
            problems=tuple(islice(problems, SHOWN_PROBLEMS)),
            num_problems=sum(len(shard.problems) for shard in shards),
            new_samples=self._progress.new_samples,
            new_shards=len(shards) - self._num_visible,
            open_chunks=0 if complete else self._open_chunks(),
            elapsed_s=self._progress.elapsed_s,
            stopped=self._stopped,
            failures=tuple(_distinct(self._failures)),
            over_budget=self._over_budget
            or over_budget(counts, context.spec.errors, complete=complete),
            demo=any(checkpoint.demo for checkpoint in context.checkpoints.values()),
        )


def _distinct(failures: Sequence[Failure]) -> list[Failure]:
    return list({(failure.stage, failure.message): failure for failure in failures}.values())
