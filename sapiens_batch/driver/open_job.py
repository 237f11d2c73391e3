"""Everything that is decided before a worker starts: weights, inputs, output, what is left to do.

Checks come in the order in which a person can mend them (spec, weights, input, output), all of them
before Ray is started. Imports no ray, so `plan` and refusals are quick.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from sapiens_batch.driver.journal import package_versions
from sapiens_batch.errors import DriftError, SpecError, StorageError
from sapiens_batch.persons.detector import detector_digest, with_absolute_model
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.plan import PlanDrift, compare, write_plan
from sapiens_batch.records import LabelSchema, Level, Shard, TaskName
from sapiens_batch.sinks import label_schema as schema_json
from sapiens_batch.sources import make_source, selection_digest
from sapiens_batch.spec.digest import differences, digest
from sapiens_batch.spec.job import JobSpec, OutputSpec
from sapiens_batch.stages.context import JobContext
from sapiens_batch.storage import Capabilities, Store, open_store

if TYPE_CHECKING:
    from sapiens_batch.models.weights import Checkpoint
    from sapiens_batch.tasks.base import Task

SHOWN_DIFFERENCES = 20
PLAN_ROUNDS = 5
"""Another driver may plan at the same time from another listing, and its plan then counts."""

MAX_CHUNK_ROWS = 2**18
"""Rows of an array object; its index takes 16 bytes for each, whether it is labeled or not."""


@dataclass(frozen=True, slots=True)
class ResolvedJob:
    """A spec with its weights and inputs found.

    Attributes:
        spec: The validated job file.
        tasks: The tasks, described without weights in memory.
        shards: The input as it is listed now, sorted by key.
        digest_fields: What decides the labels, as JSON values (I4).
        detector_digest: Digest of the person detector; None where there is none.
    """

    spec: JobSpec
    tasks: Mapping[TaskName, Task]
    shards: tuple[Shard, ...]
    digest_fields: Mapping[str, Any]
    detector_digest: str | None

    @property
    def schemas(self) -> dict[TaskName, LabelSchema]:
        """Label schemas of the tasks, with the rows that the job sets aside for a sample."""
        max_persons = self.spec.persons_section.max_persons
        return {name: _with_rows(task.schema, max_persons) for name, task in self.tasks.items()}

    @property
    def finds_persons(self) -> bool:
        """Whether persons are asked for: by a task, or by a `persons` section."""
        by_task = any(task.schema.level is Level.PERSON for task in self.tasks.values())
        return by_task or self.spec.persons is not None


def resolve(spec: JobSpec) -> ResolvedJob:
    """Find the weights and list the input of a job; nothing is written.

    Raises:
        SpecError: The terms of some weights were not accepted, or a task cannot be stored.
        DependencyError: An optional package that the spec needs is not installed.
        WeightsError: A checkpoint is missing, damaged or of the wrong shape.
        InputError: The input cannot be listed, or there is none.
    """
    from sapiens_batch.labeler import describe  # torch: a driver of a known job does without

    tasks = describe(spec.tasks, accepted=spec.accept_licences)
    _check_array_rows(spec, tasks)
    _check_boxes(spec, tasks)
    shards = make_source(spec.source).plan()
    detector = detector_digest(spec.persons_section)
    digest_fields = spec.digest_fields(
        {name: task.checkpoint.digest for name, task in tasks.items()},
        select_digest=selection_digest(spec.source),
        detector_digest=detector,
    )
    return ResolvedJob(
        spec, tasks, tuple(islice(shards, spec.source.limit)), digest_fields, detector
    )


def _with_rows(schema: LabelSchema, max_persons: int) -> LabelSchema:
    if schema.array is None or schema.level is Level.IMAGE:
        return schema
    return replace(schema, array=replace(schema.array, rows_per_sample=max_persons))


def _check_array_rows(spec: JobSpec, tasks: Mapping[TaskName, Task]) -> None:
    chunk_samples, max_persons = spec.output.chunk_samples, spec.persons_section.max_persons
    if chunk_samples * max_persons <= MAX_CHUNK_ROWS:
        return
    for name, task in tasks.items():
        if task.schema.level is Level.PERSON and task.schema.array is not None:
            raise SpecError(
                f"tasks.{name}: arrays of persons have persons.max_persons {max_persons} x "
                f"output.chunk_samples {chunk_samples} rows per stored object, at most "
                f"{MAX_CHUNK_ROWS} are possible; make one of the two smaller"
            )


def _check_boxes(spec: JobSpec, tasks: Mapping[TaskName, Task]) -> None:
    """That somebody says where persons are, lest every image turn out empty."""
    section = spec.persons_section
    names = [name for name, task in tasks.items() if task.schema.level is Level.PERSON]
    if spec.source.gives_boxes or section.origin != "source" or section.on_empty != "keep":
        return
    if names or spec.persons is not None:
        who = f"tasks.{', tasks.'.join(names)}: labels persons" if names else "persons: given"
        raise SpecError(
            f"{who}, but nothing says where they are: name the boxes in source.boxes, or set "
            "persons.from to detector, or to whole_image where each image is one person"
        )


def look_at(job: ResolvedJob) -> Manifest | None:
    """The job directory as it is, or None where there is none yet; nothing is written.

    Raises:
        DriftError: As for `open_job`.
        StorageError: The output cannot be read.
    """
    store = open_store(job.spec.output.uri, job.spec.output.storage_options)
    if not store.exists(keys.JOB):
        return None
    manifest = Manifest.open(store)
    _check_spec(manifest, job, digest(job.digest_fields))
    if manifest.plans():
        _check_input(manifest, compare(manifest.shards(), job.shards))
    return manifest


def open_job(job: ResolvedJob, warn: Callable[[str], None]) -> tuple[JobContext, Manifest]:
    """Create the job directory, or open it after checking that spec and input are the same.

    Args:
        job: The job.
        warn: Called with what the user should know though the job goes on.

    Raises:
        DriftError: The spec or the input changed since the job was started; shows how.
        StorageError: The output cannot be written, or does not keep two drivers apart.
    """
    output = job.spec.output
    store = open_store(output.uri, output.storage_options)
    spec_digest = digest(job.digest_fields)
    if store.exists(keys.JOB):
        manifest = Manifest.open(store)
        _check_drivers(store, output, manifest.job.probed, warn)
    else:
        probed = store.probe()
        _check_drivers(store, output, probed, warn)
        manifest = Manifest.create(store, _document(job, spec_digest, asdict(probed)))
    _check_spec(manifest, job, spec_digest)
    _plan(manifest, job)
    context = JobContext(
        spec=_for_workers(job.spec),
        checkpoints={name: task.checkpoint for name, task in job.tasks.items()},
        schemas=job.schemas,
        task_views={name: task.view_spec for name, task in job.tasks.items()},
        finds_persons=job.finds_persons,
        spec_digest=spec_digest,
        store=manifest.store,
        detector_digest=job.detector_digest,
    )
    return context, manifest


def _check_drivers(
    store: Store, output: OutputSpec, probed: Capabilities | None, warn: Callable[[str], None]
) -> None:
    """Refuse a store that cannot decide between two drivers, unless there is only one."""
    if probed is None or probed.conditional_create:
        return
    if not output.single_driver:
        raise StorageError(
            f"{store.uri} ({probed.backend}) let an object be created twice, so two drivers could "
            "overwrite each other's labels; use another store, or promise that there is only one "
            "driver at a time with `output.single_driver: true`"
        )
    warn(
        f"warning: {store.uri} cannot create an object only if it is not there. Nothing keeps a "
        "second driver away from this job but your promise, `output.single_driver: true`."
    )


def _for_workers(spec: JobSpec) -> JobSpec:
    """The spec without what means the driver's folder; what is stored keeps what was written."""
    if spec.persons is None:
        return spec
    return spec.model_copy(update={"persons": with_absolute_model(spec.persons)})


def _document(job: ResolvedJob, spec_digest: str, capabilities: dict[str, object]) -> JobDocument:
    return JobDocument(
        name=job.spec.name,
        spec={**job.spec.public_dict(), "digest_fields": job.digest_fields},
        spec_digest=spec_digest,
        schemas=tuple(schema_json.to_json(schema) for schema in job.schemas.values()),
        extra_columns=tuple(job.spec.source.columns),
        capabilities=capabilities,
        licences={
            task.checkpoint.id: _licence_note(task.checkpoint) for task in job.tasks.values()
        },
        versions=package_versions(),
    )


def _licence_note(checkpoint: Checkpoint) -> str:
    accepted = f", accepted by {checkpoint.accepted_by}" if checkpoint.accepted_by else ""
    return checkpoint.licence + accepted


def _check_spec(manifest: Manifest, job: ResolvedJob, spec_digest: str) -> None:
    if manifest.job.spec_digest == spec_digest:
        return
    lines = differences(manifest.job.spec["digest_fields"], job.digest_fields)
    raise DriftError(
        f"the spec is not the one that {manifest.store.uri} was started with:\n"
        + _listed(lines)
        + "\nUndo the change, or give the changed job another `output.uri`."
    )


def _plan(manifest: Manifest, job: ResolvedJob) -> None:
    """Plan what is new in the input until the plans, read back, hold it all (I9)."""
    for _ in range(PLAN_ROUNDS):
        drift = compare(manifest.shards(), job.shards)
        _check_input(manifest, drift)
        if not drift.new:
            return
        number = len(manifest.plans())
        write_plan(manifest.store, drift.new, number=number, source=job.spec.source.uris)
    raise StorageError(
        f"the plan of {manifest.store.uri} does not hold the input though it was written "
        f"{PLAN_ROUNDS} times: other drivers plan other input at the same time, or the store does "
        "not return what was written; see that one job file is used, and run again"
    )


def _check_input(manifest: Manifest, drift: PlanDrift) -> None:
    if not drift.changed and not drift.missing:
        return
    lines = [f"changed: {new.key}: {old.version} -> {new.version}" for old, new in drift.changed]
    lines += [f"missing: {shard.key}" for shard in drift.missing]
    raise DriftError(
        f"the input is not the one that {manifest.store.uri} was planned with:\n"
        + _listed(lines)
        + "\nRestore the input, or label what it is now with another `output.uri`."
    )


def _listed(lines: list[str]) -> str:
    shown = [f"  {line}" for line in lines[:SHOWN_DIFFERENCES]]
    if len(lines) > SHOWN_DIFFERENCES:
        shown.append(f"  and {len(lines) - SHOWN_DIFFERENCES} more")
    return "\n".join(shown)
