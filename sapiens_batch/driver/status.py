"""What a job has done so far, from its directory alone, and what one would do, from its spec.

Reads commits, the keys of receipts and journals; starts nothing, writes nothing, imports no ray.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

import numpy as np

from sapiens_batch.driver.journal import CALM_EVERY_S
from sapiens_batch.driver.open_job import ResolvedJob, look_at
from sapiens_batch.driver.partition import WHOLE, Partition
from sapiens_batch.protocol.commit import total_reasons
from sapiens_batch.protocol.documents import Counts
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.runs import Run, read_runs, shard_keys
from sapiens_batch.records import LabelSchema, Problem

SILENT_S = 3 * CALM_EVERY_S
"""A run that is at work says something in every third of this."""

LOOKED_AT_RUNS = 16


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Where a job, or a part of it, stands.

    Attributes:
        name: The job's name.
        output: Address of the job directory.
        num_shards: Planned shards.
        committed_shards: Visible shards.
        waiting_shards: Shards with an open order: samples that are to be labeled again.
        open_chunks: Labeled chunks of shards that are not done, kept for the next run.
        counts: Samples of visible shards by status, and persons.
        reasons: Quarantined samples by reason.
        problems: (shard key, problem) of shards with damage that belongs to no sample.
    """

    name: str
    output: str
    num_shards: int
    committed_shards: int
    waiting_shards: int
    open_chunks: int
    counts: Counts
    reasons: dict[str, int]
    problems: tuple[tuple[str, Problem], ...]

    @property
    def open_shards(self) -> int:
        """Shards without a commit."""
        return self.num_shards - self.committed_shards

    @property
    def complete(self) -> bool:
        """Whether every planned shard is visible, with nothing left to label again."""
        return not self.open_shards and not self.waiting_shards

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        counts = self.counts.model_dump()
        return {**asdict(self), "open_shards": self.open_shards, "counts": counts}


def job_status(manifest: Manifest, partition: Partition = WHOLE) -> JobStatus:
    """Where a part of a job stands now.

    Raises:
        ProtocolError: A stored document is damaged.
    """
    shards = [one for one in manifest.summaries() if partition.owns(one.shard_id)]
    num_shards = sum(partition.owns(shard.shard_id) for shard in manifest.shards())
    waiting = sum(map(partition.owns, manifest.open_orders()))
    todo = manifest.todo() if waiting or len(shards) < num_shards else []
    return JobStatus(
        name=manifest.job.name,
        output=manifest.store.uri,
        num_shards=num_shards,
        committed_shards=len(shards),
        waiting_shards=waiting,
        open_chunks=sum(len(one.done_chunks) for one in todo if partition.owns(one.shard.shard_id)),
        counts=sum((shard.counts for shard in shards), Counts()),
        reasons=total_reasons(shards),
        problems=tuple((shard.shard_key, one) for shard in shards for one in shard.problems),
    )


@dataclass(frozen=True, slots=True)
class RunStatus:
    """How a run stands, as its journal says.

    Attributes:
        run: Its id.
        standing: `ended`; `died`; or `running`, as far as the time of its last line tells.
        began: When it began.
        last_word: Time of its last line.
        host: Where its driver ran.
        partition: Its part of the job.
        exit_code: How it ended, or None.
        why: What ended it early, or empty.
        samples_per_s: Its last rate, or None before the first.
        in_flight: (shard key, chunk) of what was begun when it last said so; the chunk is None
            where a shard was read.
    """

    run: str
    standing: Literal["ended", "died", "running"]
    began: str
    last_word: str
    host: str
    partition: str
    exit_code: int | None
    why: str
    samples_per_s: float | None
    in_flight: tuple[tuple[str, int | None], ...]


def last_runs(manifest: Manifest) -> list[RunStatus]:
    """The newest run of a job, and older ones that seem to be at work still; newest first.

    Raises:
        StorageError: The journals cannot be read.
    """
    runs = list(read_runs(manifest.store, newest=LOOKED_AT_RUNS))
    wanted = [run for run in runs if run is runs[0] or _standing(run) == "running"]
    names = shard_keys(manifest, {place[0] for run in wanted for place in run.in_flight})
    return [_run_status(run, names) for run in wanted]


def _run_status(run: Run, names: dict[str, str]) -> RunStatus:
    started, ended = run.last("started") or {}, run.last("ended") or {}
    return RunStatus(
        run=run.run,
        standing=_standing(run),
        began=str(started.get("t", "")),
        last_word=run.last_word,
        host=str(started.get("host", "")),
        partition=str(started.get("partition", "")),
        exit_code=ended.get("exit_code"),
        why=str(ended.get("why", "")),
        samples_per_s=(run.last("progress") or {}).get("samples_per_s"),
        in_flight=tuple((names.get(shard, shard), chunk) for shard, _, chunk in run.in_flight),
    )


def _standing(run: Run) -> Literal["ended", "died", "running"]:
    if run.has_ended:
        return "ended"
    started = run.last("started") or {}
    if started.get("host") == socket.gethostname() and not _lives(started.get("pid")):
        return "died"
    try:
        age_s = time.time() - datetime.fromisoformat(run.last_word).timestamp()
    except ValueError:
        return "died"
    return "running" if age_s < SILENT_S else "died"


def _lives(pid: object) -> bool:
    """Whether a process of this machine is there."""
    try:
        os.kill(int(str(pid)), 0)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """What one task will do.

    Attributes:
        task: The task.
        checkpoint: What the job file named.
        arch: Name of the encoder's architecture.
        view: The model input.
        level: Whether it labels images or persons.
        row_bytes: Bytes of one label row before compression.
        demo: Whether the weights are random.
    """

    task: str
    checkpoint: str
    arch: str
    view: str
    level: str
    row_bytes: int
    demo: bool


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What a job would do.

    Attributes:
        name: The job's name.
        output: Address of the job directory.
        num_shards: Shards of the input.
        input_bytes: Their size.
        tasks: What each task will do.
        status: Where earlier runs left it, or None where there was none.
    """

    name: str
    output: str
    num_shards: int
    input_bytes: int
    tasks: tuple[TaskPlan, ...]
    status: JobStatus | None

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {**asdict(self), "status": None if self.status is None else self.status.to_json()}


def job_plan(job: ResolvedJob) -> JobPlan:
    """What a run of a resolved job would do.

    Raises:
        DriftError: The spec or the input is not what the job was started with.
        StorageError: The output cannot be read.
    """
    manifest = look_at(job)
    return JobPlan(
        name=job.spec.name,
        output=job.spec.output.uri,
        num_shards=len(job.shards),
        input_bytes=sum(shard.size_bytes for shard in job.shards),
        tasks=tuple(_task_plans(job)),
        status=None if manifest is None else job_status(manifest),
    )


def _task_plans(job: ResolvedJob) -> Iterator[TaskPlan]:
    for name, task in job.tasks.items():
        yield TaskPlan(
            task=name,
            checkpoint=task.checkpoint.id,
            arch=task.checkpoint.config.encoder.name,
            view=task.view_spec.name,
            level=str(task.schema.level),
            row_bytes=_row_bytes(task.schema),
            demo=task.checkpoint.demo,
        )


def _row_bytes(schema: LabelSchema) -> int:
    """Bytes of the numbers of a row; the name of its array is the same for all."""
    fields = [(one.dtype, one.shape) for one in schema.table_columns if one.dtype != "string"]
    if schema.array is not None:
        fields.append((schema.array.dtype, schema.array.row_shape))
    return sum(int(np.dtype(dtype).itemsize * np.prod(shape, initial=1)) for dtype, shape in fields)
