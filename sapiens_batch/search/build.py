"""Build an index, or add to it what was committed since.

A segment whose shards are all still what they were is kept; everything else is read again. Small
segments are folded into the next one, so that their number stays small. Segments are named by their
content: a build that was cut short continues, two builds at once do the same work and one view
wins.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from sapiens_batch.errors import DriftError
from sapiens_batch.labelset import LabelSet
from sapiens_batch.protocol.documents import StoredObject, now
from sapiens_batch.search.cells import EXACT_ROWS, build_cells, to_bytes
from sapiens_batch.search.documents import (
    IndexView,
    Segment,
    existing_view,
    newest_view,
    segment_id,
    segment_key,
    segment_object,
    view_key,
)
from sapiens_batch.search.vectors import DEFAULT_COLUMN, dimension, read_vectors
from sapiens_batch.sinks import parquet
from sapiens_batch.storage import Store, create_or_read

SEGMENT_ROWS: Final = 250_000
"""Most vectors of a segment: 1 GB of memory for vectors of 1,024 numbers."""

TARGET_RECALL: Final = 0.97
"""Above the 0.95 that is promised, because it is measured on a sample of queries."""

OnSegment = Callable[[Segment], None]


def build_index(
    labels: LabelSet,
    store: Store,
    *,
    column: str = DEFAULT_COLUMN,
    target_recall: float = TARGET_RECALL,
    segment_rows: int = SEGMENT_ROWS,
    exact_rows: int = EXACT_ROWS,
    on_segment: OnSegment | None = None,
) -> IndexView:
    """Bring an index up to what a job has committed.

    Args:
        labels: The job.
        store: The index folder; empty at first.
        column: Column of `images` that holds the vectors.
        target_recall: Share of the ten nearest neighbours that an approximate query is to find.
        segment_rows: Most samples of a segment; a larger shard is a segment of its own.
        exact_rows: Segments up to this size are searched exactly.
        on_segment: Called with each new segment.

    Raises:
        DriftError: The folder holds the index of another job or column.
        InputError: The job has no such column of vectors.
        DependencyError: faiss is not installed.
        StorageError: The folder cannot be written.
    """
    size = dimension(labels, column)
    settings = {"recall": target_recall, "exact_rows": exact_rows}
    while True:
        before = newest_view(store)
        kept: list[Segment] = []
        if before is not None:
            _check_same(before, labels, column, store)
            kept = _still_true(before, labels)
        pending = _pending(labels, kept, segment_rows)
        if before is not None and len(kept) == len(before.segments) and not pending:
            return before
        new = []
        for shards in _runs(labels, pending, segment_rows):
            new.append(_make_segment(labels, store, shards, column, settings))
            if on_segment is not None:
                on_segment(new[-1])
        view = IndexView(
            number=0 if before is None else before.number + 1,
            job=labels.job.name,
            spec_digest=labels.job.spec_digest,
            column=column,
            dimension=size,
            segments=(*kept, *new),
            write_id=uuid.uuid4().hex,
            created=now(),
        )
        if store.create(view_key(view.number), view.to_bytes()):
            return view


def opened_view(labels: LabelSet, store: Store) -> IndexView:
    """The index of a job as its folder has it, which may be behind the job.

    Raises:
        StorageError: The folder holds no index.
        DriftError: It holds the index of another job.
    """
    view = existing_view(store)
    _check_same(view, labels, view.column, store)
    return view


def _check_same(before: IndexView, labels: LabelSet, column: str, store: Store) -> None:
    mine = (labels.job.spec_digest, column)
    if (before.spec_digest, before.column) != mine:
        raise DriftError(
            f"{store.uri} holds the index of column {before.column!r} of job {before.job!r} "
            f"(spec {before.spec_digest[:12]}), not of column {column!r} of {labels.job.name!r} "
            f"(spec {mine[0][:12]}); use another folder"
        )


def _still_true(before: IndexView, labels: LabelSet) -> list[Segment]:
    """Segments whose shards are all visible in the generation that was read."""
    visible = {shard_id: shard.generation for shard_id, shard in labels.shards.items()}
    return [one for one in before.segments if one.shards.items() <= visible.items()]


def _pending(labels: LabelSet, kept: list[Segment], segment_rows: int) -> list[str]:
    """Shards to read, sorted; takes small segments at the end of `kept` back to be folded in."""
    covered = {shard_id for segment in kept for shard_id in segment.shards}
    pending = [shard_id for shard_id in labels.shards if shard_id not in covered]
    num = sum(labels.shards[shard_id].num_samples for shard_id in pending)
    while pending and kept and kept[-1].num_rows <= num:
        if kept[-1].num_rows + num > segment_rows:
            break
        folded = kept.pop()
        pending += folded.shards
        num += folded.num_rows
    return sorted(pending)


def _runs(
    labels: LabelSet, shard_ids: Iterable[str], segment_rows: int
) -> Iterable[Mapping[str, int]]:
    """Shards with their generations, cut into segments."""
    run: dict[str, int] = {}
    num = 0
    for shard_id in shard_ids:
        shard = labels.shards[shard_id]
        if run and num + shard.num_samples > segment_rows:
            yield run
            run, num = {}, 0
        run[shard_id] = shard.generation
        num += shard.num_samples
    if run:
        yield run


def _make_segment(
    labels: LabelSet,
    store: Store,
    shards: Mapping[str, int],
    column: str,
    settings: Mapping[str, float],
) -> Segment:
    """Write a segment, or take the one that an earlier build wrote."""
    name = segment_id(column, shards, settings)
    key = segment_key(name)
    if store.exists(key):
        return Segment.from_bytes(store.read(key), key)
    places, vectors = read_vectors(labels, list(shards), column)
    cells = build_cells(
        vectors,
        target_recall=settings["recall"],
        exact_rows=int(settings["exact_rows"]),
    )
    write_id = uuid.uuid4().hex
    segment = Segment(
        segment_id=name,
        kind="approximate" if cells.num_cells else "exact",
        num_rows=len(vectors),
        shards=dict(shards),
        num_cells=cells.num_cells,
        probes=cells.probes,
        recall=cells.recall,
        places=_put(
            store, segment_object(name, write_id, "parquet"), parquet.encode(places), len(vectors)
        ),
        vectors=_put(store, segment_object(name, write_id, "faiss"), to_bytes(cells), len(vectors)),
    )
    return Segment.from_bytes(create_or_read(store, key, segment.to_bytes())[0], key)


def _put(store: Store, key: str, data: bytes, rows: int) -> StoredObject:
    store.create(key, data)
    return StoredObject.describe(key, data, rows=rows)
