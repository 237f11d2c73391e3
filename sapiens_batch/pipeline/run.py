"""Run a job from its spec to its commits; running the same spec again resumes it.

The order of things is here and nowhere else: resolve, open, take up what is done, run the graph
over the rest, seal, and compare plan and commits at the end.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from sapiens_batch.job.manifest import Manifest, ShardTodo
from sapiens_batch.job.receipt import Counts
from sapiens_batch.job.spec import JobSpec
from sapiens_batch.pipeline.cells import Failure
from sapiens_batch.pipeline.context import JobContext
from sapiens_batch.pipeline.driver import Driver
from sapiens_batch.pipeline.progress import Progress, Reporter
from sapiens_batch.pipeline.session import StopRequested, ray_session, stop_signals
from sapiens_batch.pipeline.sizing import decide
from sapiens_batch.pipeline.start import open_job, resolve
from sapiens_batch.pipeline.status import count_reasons


@dataclass(frozen=True, slots=True)
class JobSummary:
    """How a run ended.

    Attributes:
        name: The job's name.
        output: Address of the job directory.
        num_shards: Planned shards.
        committed_shards: Visible shards.
        counts: Samples of visible shards by status, and persons.
        reasons: Quarantined samples by reason.
        damaged_shards: Shards with damage that belongs to no sample.
        new_samples: Samples that this run labeled.
        elapsed_s: Seconds that this run took.
        stopped: Signal that ended the run early, or empty.
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
    damaged_shards: int
    new_samples: int
    elapsed_s: float
    stopped: str = ""
    failures: tuple[Failure, ...] = ()
    over_budget: bool = False
    demo: bool = False

    @property
    def complete(self) -> bool:
        """Whether every planned shard is visible."""
        return self.committed_shards == self.num_shards

    @property
    def exit_code(self) -> int:
        """0 complete, 4 complete but over the error budget, 5 incomplete."""
        if not self.complete:
            return 5
        return 4 if self.over_budget else 0


def run_job(spec: JobSpec, reporter: Reporter) -> JobSummary:
    """Run or resume a job until it is complete, stopped, or out of attempts.

    Raises:
        SapiensBatchError: The job could not be started; see `start`.
    """
    job = resolve(spec)
    context, manifest = open_job(job)
    plans = manifest.plans()
    progress = Progress(
        num_shards=sum(plan.num_shards for plan in plans),
        planned_bytes=sum(plan.size_bytes for plan in plans),
    )
    todo = manifest.todo()
    _count_commits(manifest, progress)
    stopped = ""
    failures: tuple[Failure, ...] = ()
    if todo:
        stopped, failures = _label(context, manifest, todo, progress, reporter)
    return _summary(context, manifest, progress, stopped, failures)


def _count_commits(manifest: Manifest, progress: Progress) -> None:
    sizes = {shard.shard_id: shard.size_bytes for shard in manifest.shards()}
    for commit in manifest.commits():
        progress.resume(commit.counts)
        progress.shard_done(commit, sizes.get(commit.shard_id, 0))


def _label(
    context: JobContext,
    manifest: Manifest,
    todo: list[ShardTodo],
    progress: Progress,
    reporter: Reporter,
) -> tuple[str, tuple[Failure, ...]]:
    """Label what is to do; returns the signal that stopped it, and failures of the last pass."""
    driver = Driver(context, manifest, progress, reporter)
    stopped = ""
    try:
        with stop_signals():
            driver.resume(todo)
            if driver.open_shards:
                reporter.message("starting Ray")
                _run_passes(context, driver, reporter)
            driver.settle()
    except StopRequested as signal:
        stopped = str(signal)
    finally:
        driver.close()
    return stopped, tuple(driver.failures)


def _run_passes(context: JobContext, driver: Driver, reporter: Reporter) -> None:
    with ray_session(context.spec.runtime) as cluster:
        # imported here: the session sets the environment that ray reads when it is imported
        from sapiens_batch.pipeline import graph

        graph.configure_ray_data()
        sizing = decide(cluster, context.spec.runtime, physical_cpus=os.cpu_count() or 1)
        for attempt in range(1, context.spec.errors.max_attempts + 1):
            driver.failures.clear()
            for wave in driver.waves():
                for outcome in graph.outcomes(graph.build(context, wave, sizing)):
                    driver.accept(outcome)
            driver.settle()
            if not driver.open_shards and not driver.failures:
                return
            for failure in _distinct(driver.failures):
                reporter.message(f"attempt {attempt}: {failure.stage} failed: {failure.message}")


def _distinct(failures: list[Failure]) -> list[Failure]:
    return list({(failure.stage, failure.message): failure for failure in failures}.values())


def _summary(
    context: JobContext,
    manifest: Manifest,
    progress: Progress,
    stopped: str,
    failures: tuple[Failure, ...],
) -> JobSummary:
    commits = list(manifest.commits())
    counts = sum((commit.counts for commit in commits), Counts())
    budget = context.spec.errors.max_quarantined_fraction
    return JobSummary(
        name=context.spec.name,
        output=context.store.uri,
        num_shards=progress.num_shards,
        committed_shards=len(commits),
        counts=counts,
        reasons=count_reasons(commits),
        damaged_shards=sum(bool(commit.problems) for commit in commits),
        new_samples=progress.new_samples,
        elapsed_s=progress.elapsed_s,
        stopped=stopped,
        failures=tuple(_distinct(list(failures))),
        over_budget=counts.quarantined > budget * max(1, counts.samples),
        demo=any(checkpoint.demo for checkpoint in context.checkpoints.values()),
    )
