"""From the settings of tasks to their weights: found, identified, and their terms accepted.

Keeps no weights in memory. Nothing is downloaded before the terms of a released repository are
accepted, and no checkpoint leaves here without; that it was, and where, travels with it into the
label metadata.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from sapiens_batch.errors import SpecError
from sapiens_batch.models.catalog import check_serves, unknown_release
from sapiens_batch.models.licences import (
    Ask,
    LicenceRecord,
    accepted_by,
    licence_named,
    licence_of_id,
)
from sapiens_batch.models.weights import Checkpoint, resolve_checkpoint
from sapiens_batch.records import TaskName
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.tasks import TASKS
from sapiens_batch.tasks.base import Task
from sapiens_batch.tasks.vocabulary import load_vocabulary


def resolve(
    tasks: Mapping[TaskName, TaskSpec],
    *,
    accepted: Collection[str] = (),
    ask: Ask = "job_file",
) -> dict[TaskName, Checkpoint]:
    """Find and identify the weights of each task, without keeping them in memory.

    Args:
        tasks: Settings by task.
        accepted: Keys of the licences that the job file accepts; the environment may accept more.
        ask: Where the caller lets a person accept, for the message.

    Raises:
        SpecError: When a task is not there, or the terms of its weights were not accepted.
        WeightsError: When a checkpoint cannot be found or read, or its id names weights that are
            for other tasks.
    """
    checkpoints: dict[TaskName, Checkpoint] = {}
    for name, spec in tasks.items():
        task, terms = task_type(name), licence_of_id(spec.checkpoint)
        check_serves(spec.checkpoint, name)
        if terms is not None:
            hint = unknown_release(spec.checkpoint)
            accepted_by(terms, spec.checkpoint, accepted, ask=ask, hint=hint)
        checkpoint = resolve_checkpoint(
            spec.checkpoint, spec.revision, file=spec.file, head=task.head
        )
        record = require_acceptance({spec.checkpoint: checkpoint}, accepted, ask=ask)[
            spec.checkpoint
        ]
        checkpoints[name] = _as_asked(
            name, spec, replace(checkpoint, accepted_by=record.accepted_by)
        )
    return checkpoints


def _as_asked(name: TaskName, spec: TaskSpec, checkpoint: Checkpoint) -> Checkpoint:
    """A checkpoint with the input size and the vocabulary that the job file gives."""
    if spec.image_size is not None:
        config = replace(checkpoint.config, image_size=spec.image_size)
        checkpoint = replace(checkpoint, config=config.checked(f"tasks.{name}"))
    if spec.vocabulary is None:
        return checkpoint
    where = f"tasks.{name}.vocabulary"
    if name not in ("pose", "seg"):
        raise SpecError(f"{where}: only pose and seg have channels with names; leave it out")
    return replace(checkpoint, vocabulary=load_vocabulary(spec.vocabulary, where))


def require_acceptance(
    checkpoints: Mapping[str, Checkpoint], accepted: Collection[str], *, ask: Ask = "job_file"
) -> dict[str, LicenceRecord]:
    """Check that somebody accepted the terms of all weights.

    Args:
        checkpoints: Resolved weights under any names.
        accepted: Keys of the licences that the job file accepts; the environment may accept more.
        ask: As for `resolve`.

    Returns:
        The terms of each checkpoint, and where they were accepted, under the same names.

    Raises:
        SpecError: Some were not; shows the terms and how to accept them.
    """
    records = {}
    for name, checkpoint in checkpoints.items():
        terms = licence_named(checkpoint.licence)
        if terms is None:
            records[name] = LicenceRecord(checkpoint.licence, "", "")
            continue
        where = accepted_by(terms, checkpoint.id, accepted, ask=ask)
        records[name] = LicenceRecord(terms.name, terms.url, where)
    return records


def describe(
    tasks: Mapping[TaskName, TaskSpec],
    checkpoints: Mapping[TaskName, Checkpoint] | None = None,
    *,
    accepted: Collection[str] = (),
    ask: Ask = "job_file",
) -> dict[TaskName, Task]:
    """The tasks with their schemas, views and checkpoints, without weights in memory.

    Args:
        tasks: Settings by task.
        checkpoints: Resolved weights by task; resolved here where not given.
        accepted: As for `resolve`.
        ask: As for `resolve`.

    Raises:
        SpecError: When settings ask for what a task cannot do, or terms were not accepted.
        WeightsError: When a checkpoint cannot be found or read, or has no head for its task.
    """
    resolved = resolve(tasks, accepted=accepted, ask=ask) if checkpoints is None else checkpoints
    return {name: task_type(name)(spec, resolved[name]) for name, spec in tasks.items()}


def task_type(name: TaskName) -> type[Task]:
    """The class of a task.

    Raises:
        SpecError: There is no such task.
    """
    if name not in TASKS:
        raise SpecError(f"tasks.{name}: no such task; there are {', '.join(TASKS)}")
    return TASKS[name]
