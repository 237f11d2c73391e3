"""Run an export: plan once, export shard by shard, finish, and leave a mark that it is whole.

What the objects hold is left to the exporters. Every object and receipt is created once; running
again continues where the last run ended, and does nothing after the end. The labels that an export
is made from are fixed by its plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from sapiens_batch.errors import DriftError, InputError, ProtocolError, SpecError
from sapiens_batch.export import documents
from sapiens_batch.export.base import Exporter, ExportOptions, Made, ShardToExport
from sapiens_batch.export.choice import Choice, SelectionFile
from sapiens_batch.export.documents import (
    ExportDone,
    ExportPlan,
    Finished,
    PlannedShard,
    ShardReceipt,
)
from sapiens_batch.export.provenance import provenance
from sapiens_batch.export.samples import SampleReader
from sapiens_batch.labelset import LabelSet
from sapiens_batch.protocol.documents import StoredObject
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.records import Shard
from sapiens_batch.spec.digest import differences
from sapiens_batch.spec.mistakes import did_you_mean
from sapiens_batch.storage import open_store
from sapiens_batch.storage.addresses import absolute_uri

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What is asked for.

    Attributes:
        job: Address of the job directory.
        output: Address of the export's folder.
        options: Options of the exporter by name.
        where: Filter on `images`, as `labelset.filters` reads it.
        select: Address of a selection file.
        pictures: Whether to take the photos along; None for what the format is used to.
        part: (i, n), i from 1 to n: only every n-th shard, so that n processes share the work;
            whoever ends last finishes the export.
        job_options: What the job's storage needs, passed to fsspec.
        output_options: For the output and the selection file, passed to fsspec.
        source_options: For the source of the photos, passed to fsspec.
    """

    job: str
    output: str
    options: Mapping[str, Any]
    where: str | None = None
    select: str | None = None
    pictures: bool | None = None
    part: tuple[int, int] = (1, 1)
    job_options: Mapping[str, Any] | None = None
    output_options: Mapping[str, Any] | None = None
    source_options: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What an export came to.

    Attributes:
        complete: Whether every object is there; else other parts are still to run.
        new_shards: Shards that this run exported.
        samples: Exported samples, of all runs.
        num_objects: Objects, without the export's own notes.
        warning: What a reader must know; empty for nothing.
    """

    output: str
    complete: bool
    new_shards: int
    num_shards: int
    samples: int
    num_objects: int
    size_bytes: int
    warning: str


def run_export(
    kind: type[Exporter[Any]], request: ExportRequest, progress: Progress | None = None
) -> ExportSummary:
    """Export a job, or continue an export.

    `progress` is called with (done, all) shards.

    Raises:
        SpecError: An option is unknown or out of range.
        InputError: The job lacks the labels or photos, or the selection cannot be read.
        DriftError: The output holds another export, or the job was labeled again since it began.
        ProtocolError: An object of the output is not what this export makes.
        StorageError: Job or output cannot be used.
    """
    if absolute_uri(request.job) == absolute_uri(request.output):
        raise InputError(f"{request.output} is the job directory itself; give another folder")
    run = _Run(kind, request)
    done = run.done()
    new_shards = 0
    if done is None:
        new_shards = run.export_shards(progress)
        done = run.finish()
    return run.summary(done, new_shards)


class _Run:
    """One run of one export."""

    def __init__(self, kind: type[Exporter[Any]], request: ExportRequest) -> None:
        options = _options(kind, request)
        self._store = open_store(request.output, request.output_options)
        self._manifest = Manifest.open(open_store(request.job, request.job_options))
        self._labels = LabelSet(self._manifest)
        self._origin = provenance(self._labels.job, self._labels.schemas)
        self._exporter = kind(self._labels, options, self._origin)
        selection = None
        if request.select is not None:
            selection = SelectionFile(request.select, dict(request.output_options or {}))
        self._choice = Choice(request.where, selection)
        self._part = request.part
        self._plan = self._open_plan(request, options)
        self._finished = Finished(self._store, self._plan)
        self._reader = SampleReader(
            self._manifest,
            self._labels,
            pictures=bool(self._plan.options.get("pictures")),
            source_options=request.source_options,
        )

    def done(self) -> ExportDone | None:
        """The mark of a whole export; what an earlier run left to tidy is removed."""
        if not self._store.exists(documents.DONE):
            return None
        self._tidy()
        return ExportDone.from_bytes(self._store.read(documents.DONE), documents.DONE)

    def export_shards(self, progress: Progress | None) -> int:
        """Export what this part has to; returns the number of new shards."""
        numbers = {planned.shard_id: n for n, planned in enumerate(self._plan.shards)}
        finished = self._finished_shards()
        part, parts = self._part
        new_shards = 0
        for shard in self._manifest.shards():
            number = numbers.get(shard.shard_id)
            if number is None or number in finished or number % parts != part - 1:
                continue
            self._export_shard(number, shard)
            new_shards += 1
            if progress is not None:
                progress(len(finished) + new_shards, len(numbers))
        return new_shards

    def finish(self) -> ExportDone | None:
        """Write what needs all shards, unless other parts are still at work."""
        if len(self._finished_shards()) < len(self._plan.shards):
            return None
        origin = json.dumps(self._origin, indent=1, ensure_ascii=False) + "\n"
        stored = [self._put(Made(documents.PROVENANCE, origin.encode()))]
        stored += [self._put(one) for one in self._exporter.finish(self._finished)]
        samples, num_objects, size_bytes = 0, len(stored), sum(one.size_bytes for one in stored)
        for receipt in self._finished.receipts():
            kept = [one for one in receipt.objects if not one.key.startswith(documents.PIECES)]
            samples += receipt.samples
            num_objects += len(kept)
            size_bytes += sum(one.size_bytes for one in kept)
        done = ExportDone(samples=samples, num_objects=num_objects, size_bytes=size_bytes)
        self._store.create(documents.DONE, done.to_bytes())
        self._tidy()
        return done

    def summary(self, done: ExportDone | None, new_shards: int) -> ExportSummary:
        """What to tell the user."""
        return ExportSummary(
            output=self._store.uri,
            complete=done is not None,
            new_shards=new_shards,
            num_shards=len(self._plan.shards),
            samples=done.samples if done else 0,
            num_objects=done.num_objects if done else 0,
            size_bytes=done.size_bytes if done else 0,
            warning=self._origin["warning"],
        )

    def _export_shard(self, number: int, shard: Shard) -> None:
        planned = self._plan.shards[number]
        commit = self._labels.commits.get(shard.shard_id)
        if commit is None or commit.write_id != planned.write_id:
            raise DriftError(
                f"{self._store.uri}: shard {shard.key} was labeled again after this export began; "
                "export the job to another folder"
            )
        indices = self._choice.indices(self._labels, shard.shard_id)
        samples = self._reader.read(shard, indices, planned.first)
        made = self._exporter.shard(ShardToExport(number, samples))
        receipt = ShardReceipt(
            number=number,
            shard_id=shard.shard_id,
            samples=len(indices),
            objects=tuple(self._put(one) for one in made),
        )
        self._store.create(documents.receipt(number), receipt.to_bytes())

    def _finished_shards(self) -> set[int]:
        numbers = {documents.receipt(number): number for number in range(len(self._plan.shards))}
        listed = self._store.list(documents.RECEIPTS)
        return {numbers[info.key] for info in listed if info.key in numbers}

    def _put(self, made: Made) -> StoredObject:
        """Create an object; one that an interrupted run left must have the same bytes."""
        stored = StoredObject.describe(made.key, made.data, rows=made.rows)
        if self._store.create(made.key, made.data):
            return stored
        if self._store.size(made.key) == stored.size_bytes:
            found = StoredObject.describe(made.key, self._store.read(made.key), rows=made.rows)
            if found == stored:
                return stored
        raise ProtocolError(
            f"{self._store.uri}/{made.key} exists and is not what this export writes; remove it, "
            "or export to another folder"
        )

    def _tidy(self) -> None:
        for info in self._store.list(documents.PIECES):
            self._store.delete(info.key)

    def _open_plan(self, request: ExportRequest, options: ExportOptions) -> ExportPlan:
        selection = self._choice.selection
        wanted = ExportPlan(
            format=self._exporter.name,
            options=options.model_dump(mode="json"),
            where=request.where or "",
            select_sha256=selection.sha256 if selection else "",
            job=self._manifest.store.uri,
            spec_digest=self._labels.job.spec_digest,
            shards=(),
        )
        if not self._store.exists(documents.PLAN):
            shards = tuple(_planned(self._manifest.shards(), self._labels))
            if not shards:
                raise InputError(f"{request.job} has no committed shard yet; run the job first")
            plan = wanted.model_copy(update={"shards": shards})
            if self._store.create(documents.PLAN, plan.to_bytes()):
                return plan
        found = ExportPlan.from_bytes(self._store.read(documents.PLAN), documents.PLAN)
        if lines := differences(found.decisions, wanted.decisions):
            raise DriftError(
                f"{self._store.uri} holds another export ({'; '.join(lines)}); repeat its "
                "options, or use another folder"
            )
        return found


def _planned(shards: Iterable[Shard], labels: LabelSet) -> Iterator[PlannedShard]:
    first = 0
    for shard in shards:
        commit = labels.commits.get(shard.shard_id)
        if commit is not None:
            yield PlannedShard(shard.shard_id, commit.write_id, first)
            first += commit.num_samples


def _options(kind: type[Exporter[Any]], request: ExportRequest) -> ExportOptions:
    values = dict(request.options)
    if request.pictures is not None:
        if kind.pictures == "unused":
            raise SpecError(f"export {kind.name} has no place for pictures")
        values["pictures"] = request.pictures
    try:
        return kind.options_type.model_validate(values)
    except ValidationError as error:
        known = kind.options_type.model_fields
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        fault = f"option {name}: {first['msg']}, got {first['input']!r}"
        if first["type"] == "extra_forbidden":
            fault = f"no option {name!r}{did_you_mean(name, known)}"
        raise SpecError(
            f"export {kind.name}: {fault}; options are {', '.join(known) or 'none'}"
        ) from error
