"""What a job has done so far, from its directory alone, and what one would do, from its spec.

Reads commits and the keys of receipts; starts nothing, writes nothing, imports no ray.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sapiens_batch.driver.open_job import ResolvedJob, look_at
from sapiens_batch.protocol.commit import total_reasons
from sapiens_batch.protocol.documents import Counts
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.records import LabelSchema, Problem


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Where a job stands.

    Attributes:
        name: The job's name.
        output: Address of the job directory.
        num_shards: Planned shards.
        committed_shards: Visible shards.
        open_shards: Shards without a commit.
        open_chunks: Labeled chunks of open shards, kept for the next run.
        counts: Samples of visible shards by status, and persons.
        reasons: Quarantined samples by reason.
        problems: (shard key, problem) of shards with damage that belongs to no sample.
    """

    name: str
    output: str
    num_shards: int
    committed_shards: int
    open_shards: int
    open_chunks: int
    counts: Counts
    reasons: dict[str, int]
    problems: tuple[tuple[str, Problem], ...]


def job_status(manifest: Manifest) -> JobStatus:
    """Where a job stands now.

    Raises:
        ProtocolError: A stored document is damaged.
    """
    todo = manifest.todo()
    shards = list(manifest.summaries())
    return JobStatus(
        name=manifest.job.name,
        output=manifest.store.uri,
        num_shards=sum(plan.num_shards for plan in manifest.plans()),
        committed_shards=len(shards),
        open_shards=len(todo),
        open_chunks=sum(len(item.done_chunks) for item in todo),
        counts=sum((shard.counts for shard in shards), Counts()),
        reasons=total_reasons(shards),
        problems=tuple(
            (shard.shard_key, problem) for shard in shards for problem in shard.problems
        ),
    )


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
        started: Whether the job was run before.
        committed_shards: Shards that are visible already.
        open_chunks: Labeled chunks of other shards, which need no labeling again.
        open_orders: Visible shards with samples that are to be labeled again.
    """

    name: str
    output: str
    num_shards: int
    input_bytes: int
    tasks: tuple[TaskPlan, ...]
    started: bool
    committed_shards: int
    open_chunks: int
    open_orders: int


def job_plan(job: ResolvedJob) -> JobPlan:
    """What a run of a resolved job would do.

    Raises:
        DriftError: The spec or the input is not what the job was started with.
        StorageError: The output cannot be read.
    """
    manifest = look_at(job)
    found = None if manifest is None else job_status(manifest)
    return JobPlan(
        name=job.spec.name,
        output=job.spec.output.uri,
        num_shards=len(job.shards),
        input_bytes=sum(shard.size_bytes for shard in job.shards),
        tasks=tuple(
            TaskPlan(
                task=name,
                checkpoint=task.checkpoint.id,
                arch=task.checkpoint.config.encoder.name,
                view=task.view_spec.name,
                level=str(task.schema.level),
                row_bytes=_row_bytes(task.schema),
                demo=task.checkpoint.demo,
            )
            for name, task in job.tasks.items()
        ),
        started=found is not None,
        committed_shards=0 if found is None else found.committed_shards,
        open_chunks=0 if found is None else found.open_chunks,
        open_orders=0 if manifest is None else len(manifest.open_orders()),
    )


def _row_bytes(schema: LabelSchema) -> int:
    fields = [(column.dtype, column.shape) for column in schema.table_columns]
    if schema.array is not None:
        fields.append((schema.array.dtype, schema.array.row_shape))
    return sum(int(np.dtype(dtype).itemsize * np.prod(shape, initial=1)) for dtype, shape in fields)
