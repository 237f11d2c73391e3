"""The commit: the one object that makes a shard visible, and the rules that it must meet.

Pure functions over documents; reading receipts and writing commits is left to the manifest and the
pipeline. The chunks of a commit tile its shard (I5), its counts add up to its rows (I1). A later
generation's commit describes the whole shard as well: it takes the chunks that were not labeled
again from the commit before, which stays as it is.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple, Protocol, Self

from pydantic import Field, model_validator

from sapiens_batch.errors import ProtocolError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.documents import (
    Count,
    Counts,
    Document,
    Hex32,
    Sha256,
    StoredObject,
    now,
)
from sapiens_batch.protocol.receipt import Receipt
from sapiens_batch.records import FORMAT_VERSION, Problem, Shard


class ChunkRange(NamedTuple):
    """One chunk of a commit: samples `[start, stop)` and the attempt that labeled them."""

    start: int
    stop: int
    write_id: str


class CommittedArray(Document):
    """The Zarr array of one task and shard, complete under its root (I10).

    Attributes:
        root: Key of the array's folder, without a trailing slash.
        shape: Shape of the array; axis 0 is the row in the shard.
        shard_rows: Rows per Zarr shard object: row r lies in object `r // shard_rows`.
        metadata: The `zarr.json`.
        chunks: The shard objects, one a chunk.
    """

    root: str
    shape: tuple[Count, ...]
    shard_rows: Annotated[int, Field(ge=1)]
    metadata: StoredObject
    chunks: tuple[StoredObject, ...] = ()

    @model_validator(mode="after")
    def _is_under_its_root(self) -> Self:
        for one in (self.metadata, *self.chunks):
            if keys.array_root(one.key) != self.root:
                raise ValueError(f"object {one.key} does not lie under {self.root}")
        return self

    def by_chunk(self) -> dict[int, StoredObject]:
        """The shard objects by chunk; only these exist for a reader."""
        named = ((keys.parse(one.key), one) for one in self.chunks)
        return {name.chunk: one for name, one in named if name and name.chunk is not None}


class Commit(Document):
    """One labeled shard.

    Attributes:
        format_version: Version of this document.
        spec_digest: Digest of what changes labels; equals the job's.
        shard_id: The shard.
        generation: 0 for the first labels; readers take the newest generation of a shard.
        shard_key: Source-relative name of the shard.
        shard_version: Version of the input object that was read.
        num_samples: Samples in the shard, equal to its rows in `images`.
        counts: Samples by status, and persons.
        reasons: Quarantined samples by reason.
        problems: Damage of the shard that belongs to no sample.
        write_id: The attempt that sealed the shard, unique.
        tables: The shard's rows, by table; a table without rows is absent.
        arrays: The shard's arrays, by task; a task without a labeled row may be absent.
        chunks: The receipts that this commit stands on, in order.
        created: ISO 8601 time in UTC.
    """

    format_version: Annotated[int, Field(ge=1, le=FORMAT_VERSION)] = FORMAT_VERSION
    spec_digest: Sha256
    shard_id: Hex32
    generation: Count = 0
    shard_key: str
    shard_version: str
    num_samples: Count
    counts: Counts
    reasons: dict[str, Count] = Field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    write_id: Hex32
    tables: dict[str, StoredObject] = Field(default_factory=dict)
    arrays: dict[str, CommittedArray] = Field(default_factory=dict)
    chunks: tuple[ChunkRange, ...]
    created: str

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        position = 0
        for chunk in self.chunks:
            if chunk.start != position or chunk.stop < chunk.start:
                raise ValueError(
                    f"chunk [{chunk.start}, {chunk.stop}) does not start at {position}"
                )
            position = chunk.stop
        if position != self.num_samples:
            raise ValueError(f"chunks cover {position} of {self.num_samples} samples")
        return self


def tiling(receipts: Iterable[Receipt], chunk_samples: int) -> int | None:
    """Number of samples of the shard whose chunks these receipts prove, if they prove all (I5).

    Args:
        receipts: Receipts of one generation of one shard in any order.
        chunk_samples: Samples in every chunk but the last.

    Returns:
        The shard's sample count, or None while chunks are missing.

    Raises:
        ProtocolError: The receipts contradict each other: two of one chunk, a chunk that is not
            where its number says, a chunk after the last one, or receipts of two shards.
    """
    by_chunk: dict[int, Receipt] = {}
    for receipt in receipts:
        _check_place(receipt, chunk_samples)
        other = by_chunk.setdefault(receipt.chunk, receipt)
        if other is not receipt:
            raise _contradiction(receipt, f"chunk {receipt.chunk} has two receipts")
    if len({receipt.shard_id for receipt in by_chunk.values()}) > 1:
        first = next(iter(by_chunk.values()))
        raise _contradiction(first, "receipts of several shards were put together")
    ends = sorted(chunk for chunk, receipt in by_chunk.items() if receipt.last)
    if not ends:
        return None
    beyond = max(by_chunk)
    if len(ends) > 1 or beyond > ends[0]:
        raise _contradiction(
            by_chunk[beyond], f"chunk {beyond} lies beyond chunk {ends[0]}, which ends the shard"
        )
    return by_chunk[ends[0]].stop if len(by_chunk) == ends[0] + 1 else None


def check_counts(num_samples: int, counts: Counts, images_rows: int) -> None:
    """Check that every sample of a shard has a status and a row (I1).

    Raises:
        ProtocolError: Samples, statuses and rows of the images table do not agree.
    """
    if not num_samples == counts.samples == images_rows:
        raise ProtocolError(
            f"{num_samples} samples, but {counts.ok} ok + {counts.empty} empty + "
            f"{counts.quarantined} quarantined = {counts.samples}, and {images_rows} rows in "
            "`images`; the shard is not committed, run `verify`"
        )


def build_commit(
    *,
    shard: Shard,
    receipts: Sequence[Receipt],
    tables: Mapping[str, StoredObject],
    arrays: Mapping[str, CommittedArray],
    spec_digest: str,
    chunk_samples: int,
    generation: int = 0,
    counts: Counts | None = None,
    reasons: Mapping[str, int] | None = None,
    base: Commit | None = None,
) -> Commit:
    """The commit of a shard, after checking that it may be made.

    Args:
        shard: The shard as planned.
        receipts: All receipts of the generation, in any order.
        tables: The sealed tables, `images` among them.
        arrays: The arrays of the shard.
        spec_digest: The job's digest.
        chunk_samples: Samples per chunk.
        generation: The generation that the receipts belong to.
        counts: Counts of the sealed tables; needed with `base`, else equal to the receipts' sum.
        reasons: Quarantined samples of the sealed tables by reason; as `counts`.
        base: The commit of the generation before, where chunks of it are taken over.

    Raises:
        ProtocolError: The chunks do not tile the shard (I5), are of another shard, or their counts
            do not agree with the tables (I1).
    """
    chunks = _chunk_ranges(shard, receipts, chunk_samples, base)
    _check_owner(shard, receipts, generation)
    summed = total_counts(receipts)
    counts = counts or summed
    if base is None and counts != summed:
        raise ProtocolError(
            f"shard {shard.shard_id} ({shard.key}): receipts count {summed.model_dump()}, the "
            f"tables {counts.model_dump()}; run `verify`"
        )
    check_counts(chunks[-1].stop, counts, tables["images"].rows)
    persons_rows = tables["persons"].rows if "persons" in tables else 0
    if counts.persons != persons_rows:
        raise ProtocolError(
            f"shard {shard.shard_id} ({shard.key}): receipts count {counts.persons} persons, "
            f"`persons` has {persons_rows} rows; run `verify`"
        )
    ordered = sorted(receipts, key=lambda receipt: receipt.chunk)
    problems = tuple(problem for one in ordered for problem in one.problems)
    if base is not None and not any(receipt.last for receipt in ordered):
        problems = base.problems
    return Commit(
        spec_digest=spec_digest,
        shard_id=shard.shard_id,
        generation=generation,
        shard_key=shard.key,
        shard_version=shard.version,
        num_samples=chunks[-1].stop,
        counts=counts,
        reasons=dict(total_reasons(ordered) if reasons is None else reasons),
        problems=problems,
        write_id=uuid.uuid4().hex,
        tables=dict(tables),
        arrays=dict(arrays),
        chunks=chunks,
        created=now(),
    )


def _check_owner(shard: Shard, receipts: Sequence[Receipt], generation: int) -> None:
    for receipt in receipts:
        if receipt.shard_id != shard.shard_id:
            raise _contradiction(receipt, f"they were put together with shard {shard.shard_id}")
        if receipt.generation != generation:
            raise _contradiction(
                receipt, f"generation {receipt.generation} was put together with {generation}"
            )


def _chunk_ranges(
    shard: Shard, receipts: Sequence[Receipt], chunk_samples: int, base: Commit | None
) -> tuple[ChunkRange, ...]:
    """The chunks of a commit: those of receipts, the others as the base has them."""
    own = {one.chunk: ChunkRange(one.start, one.stop, one.write_id) for one in receipts}
    if base is None:
        if tiling(receipts, chunk_samples) is None:
            raise ProtocolError(
                f"shard {shard.shard_id} ({shard.key}): {len(receipts)} receipts do not reach its "
                "end; run the job again"
            )
        return tuple(own[chunk] for chunk in sorted(own))
    before = dict(enumerate(base.chunks))
    for chunk, found in own.items():
        if before.get(chunk, found)[:2] != found[:2] or chunk not in before:
            raise ProtocolError(
                f"shard {shard.shard_id} ({shard.key}): chunk {chunk} covers "
                f"[{found.start}, {found.stop}), which generation {base.generation} does not have; "
                "the input changed, run `verify`"
            )
    return tuple({**before, **own}.values())


def total_counts(receipts: Iterable[Receipt]) -> Counts:
    """Sum of the counts of receipts."""
    return sum((receipt.counts for receipt in receipts), Counts())


class _WithReasons(Protocol):
    @property
    def reasons(self) -> Mapping[str, int]: ...


def total_reasons(counted: Iterable[_WithReasons]) -> dict[str, int]:
    """Quarantined samples by reason over receipts, commits or their summaries, reasons sorted."""
    total: Counter[str] = Counter()
    for one in counted:
        total.update(one.reasons)
    return dict(sorted(total.items()))


def _check_place(receipt: Receipt, chunk_samples: int) -> None:
    num = receipt.stop - receipt.start
    if receipt.start != receipt.chunk * chunk_samples or num > chunk_samples:
        raise _contradiction(
            receipt,
            f"chunk {receipt.chunk} covers [{receipt.start}, {receipt.stop}), expected to start at "
            f"{receipt.chunk * chunk_samples} with up to {chunk_samples} samples",
        )
    if not receipt.last and num < chunk_samples:
        raise _contradiction(
            receipt, f"chunk {receipt.chunk} has {num} samples but does not end the shard"
        )


def _contradiction(receipt: Receipt, what: str) -> ProtocolError:
    return ProtocolError(f"receipts of shard {receipt.shard_id}: {what}; run `verify`")
