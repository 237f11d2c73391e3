"""What every worker of a job is given: frozen, picklable, decided on the driver.

Nothing in here depends on the machine that uses it, and nothing is looked up later: what to skip is
frozen into `ShardTodo`, so that a re-run read task yields exactly what its first run yielded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sapiens_batch.protocol.seal import SealJob
from sapiens_batch.records import LabelSchema, TaskName, ViewSpec
from sapiens_batch.sinks.tables import ParquetTables
from sapiens_batch.spec.job import JobSpec
from sapiens_batch.storage.base import Store

if TYPE_CHECKING:
    from sapiens_batch.models.weights import Checkpoint  # torch, which few workers need


@dataclass(frozen=True, slots=True)
class JobContext:
    """One job, resolved.

    Attributes:
        spec: The validated job file, storage options included, with the detector's absolute
            address.
        checkpoints: The resolved weights of each task.
        schemas: Label schemas of each task.
        task_views: The model input that each task needs.
        finds_persons: Whether persons are asked for.
        spec_digest: Digest of what decides the labels (I4).
        store: The job directory.
        detector_digest: Digest of the person detector that every worker must find; None where the
            job has none.
    """

    spec: JobSpec
    checkpoints: Mapping[TaskName, Checkpoint]
    schemas: Mapping[TaskName, LabelSchema]
    task_views: Mapping[TaskName, ViewSpec]
    finds_persons: bool
    spec_digest: str
    store: Store
    detector_digest: str | None = None

    @property
    def chunk_samples(self) -> int:
        """Samples per chunk."""
        return self.spec.output.chunk_samples

    @property
    def seal_job(self) -> SealJob:
        """What sealing needs to know of the job."""
        tables = ParquetTables(list(self.schemas.values()), self.spec.source.columns)
        return SealJob(self.store, self.schemas, self.spec_digest, self.chunk_samples, tables)

    @property
    def view_specs(self) -> tuple[ViewSpec, ...]:
        """The model inputs that the tasks need, each once."""
        return tuple(dict.fromkeys(self.task_views.values()))
