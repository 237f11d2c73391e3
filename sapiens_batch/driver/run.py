"""Run a job from its spec to its commits; running the same spec again resumes it.

The order of things is here and nowhere else: resolve, open, take up what is done, run the graph
over the rest, seal, and compare plan and commits at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sapiens_batch.driver.budget import over_budget
from sapiens_batch.driver.journal import Journal, new_run_id
from sapiens_batch.driver.open_job import open_job, resolve
from sapiens_batch.driver.partition import WHOLE, Partition
from sapiens_batch.driver.progress import Progress, Reporter
from sapiens_batch.driver.session import StopRequested, ray_session, stop_signals
from sapiens_batch.driver.status import JobStatus, job_status
from sapiens_batch.protocol.documents import Counts
from sapiens_batch.protocol.journal import Place
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.snapshot import CommitSummary, write_snapshot
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.spec.job import JobSpec
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.flow import Failure, distinct
from sapiens_batch.stages.view_labeler import LoadLabeler, load_labeler

SHOWN_PROBLEMS = 5


@dataclass(frozen=True, slots=True)
class JobSummary:
    """How a run ended.

    Attributes:
        status: Where the part of the job that was run stands now.
        new_samples: Samples that this run labeled.
        new_shards: Shards that this run made visible for the first time.
        elapsed_s: Seconds that this run took.
        stopped: What ended the run early: a signal, or empty.
        failures: What went wrong and was not mended by trying again.
        over_budget: Whether more samples were quarantined than the spec allows.
        demo: Whether the labels come from random demo weights.
    """

    status: JobStatus
    new_samples: int
    new_shards: int
    elapsed_s: float
    stopped: str = ""
    failures: tuple[Failure, ...] = ()
    over_budget: bool = False
    demo: bool = False

    @property
    def in_vain(self) -> bool:
        """Whether all is done and not one sample could be labeled, though there was something."""
        counts = self.status.counts
        tried = counts.quarantined or self.status.problems
        return self.status.complete and bool(tried) and not counts.ok and not counts.empty

    @property
    def in_setup(self) -> bool:
        """Whether the spec, the weights or an installation keeps the job from going on."""
        return any(failure.in_setup for failure in self.failures)

    @property
    def exit_code(self) -> int:
        """0 complete; 2 setup at fault; 4 over the error budget, or in vain; 5 incomplete."""
        if self.over_budget or self.in_vain:
            return 4
        if self.status.complete:
            return 0
        return 2 if self.in_setup else 5

    def to_json(self) -> dict[str, Any]:
        """JSON values; of the problems the first."""
        values = {**self.status.to_json(), **asdict(self)}
        del values["status"]
        problems = values["problems"]
        values |= {"problems": problems[:SHOWN_PROBLEMS], "num_problems": len(problems)}
        return {**values, "complete": self.status.complete, "exit_code": self.exit_code}


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
    return _Run(context, manifest, reporter, partition, load).carry_out()


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

    def carry_out(self) -> JobSummary:
        """Label what is to do; a run that has something to do keeps a journal."""
        todo = [one for one in self._manifest.todo() if one.shard.shard_id in self._sizes]
        visible = self._take_up_visible({one.shard.shard_id for one in todo})
        if not todo or self._is_over_budget():
            return self.summary()
        with Journal(self._manifest.store, new_run_id()) as journal:
            journal.start(
                job=self._context.spec.name,
                spec_digest=self._context.spec_digest,
                partition=str(self._partition),
                shards=len(self._sizes),
                shards_to_do=len(todo),
            )
            try:
                with stop_signals():
                    self._run_passes(journal, todo, visible)
            except StopRequested as signal:
                self._stopped = str(signal)
            write_snapshot(self._manifest)
            summary = self.summary()
            journal.end(summary.exit_code, summary.stopped, new_samples=summary.new_samples)
        return summary

    def _take_up_visible(self, wanted: Collection[str]) -> dict[str, Counts]:
        """Count the shards that are visible; the counts of those that are to be labeled again."""
        visible: dict[str, Counts] = {}
        for shard in self._visible_shards():
            self._num_visible += 1
            self._progress.shard_done(self._sizes[shard.shard_id], shard.counts)
            if shard.shard_id in wanted:
                visible[shard.shard_id] = shard.counts
        return visible

    def _run_passes(
        self, journal: Journal, todo: Sequence[ShardTodo], visible: Mapping[str, Counts]
    ) -> None:
        context, progress, reporter = self._context, self._progress, self._reporter
        reporter.message("starting Ray")
        with ray_session(context.spec.runtime):
            # imported here: the session sets the environment that ray reads when it is imported
            from sapiens_batch.driver.follow import Follower
            from sapiens_batch.driver.passes import Passes, count_attempts
            from sapiens_batch.driver.seals import Seals

            attempts = count_attempts(self._manifest.store, journal.run)
            seals = Seals(context.seal_job)
            follower = Follower(
                context, self._manifest, progress, reporter, visible, seals, journal
            )
            passes = Passes(context, follower, self._load, attempts, self._is_over_budget)

            def in_flight() -> list[Place]:
                return [work.place for work in attempts.unfinished()]

            try:
                with journal.watching(progress.as_dict, in_flight):
                    follower.resume(todo)
                    passes.run()
            finally:
                self._failures = tuple(distinct(follower.failures))

    def _is_over_budget(self) -> bool:
        errors = self._context.spec.errors
        self._over_budget = over_budget(self._progress.counts, errors, complete=False)
        return self._over_budget

    def _visible_shards(self) -> Iterator[CommitSummary]:
        return (one for one in self._manifest.summaries() if one.shard_id in self._sizes)

    def summary(self) -> JobSummary:
        """What the store says now; other drivers may have worked on it as well."""
        context = self._context
        status = job_status(self._manifest, self._partition)
        complete = not status.open_shards
        return JobSummary(
            status,
            new_samples=self._progress.new_samples,
            new_shards=status.committed_shards - self._num_visible,
            elapsed_s=self._progress.elapsed_s,
            stopped=self._stopped,
            failures=self._failures,
            over_budget=self._over_budget
            or over_budget(status.counts, context.spec.errors, complete=complete),
            demo=any(checkpoint.demo for checkpoint in context.checkpoints.values()),
        )
