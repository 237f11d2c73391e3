"""Snapshots: the essence of many commits in one file, so that a large job opens in seconds.

A snapshot is a cache that may be deleted. What is visible is decided by the keys of commits alone
(I2): a row counts only while its commit is the newest of its shard, every other commit is read. As
commits never change, a row that counts is right. Snapshots are named by the digest of their bytes;
a damaged one is passed over.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from sapiens_batch.protocol import keys
from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.documents import Counts, StoredObject
from sapiens_batch.records import Problem
from sapiens_batch.storage import MissingObjectError, Store

if TYPE_CHECKING:
    from sapiens_batch.protocol.manifest import Manifest

MIN_NEW_COMMITS = 256
"""Commits worth a snapshot: reading fewer takes a second at 16 requests in flight."""

BATCH_ROWS = 4096
BLOCK_ROWS = 64
"""Rows that are made into objects at once: a millisecond, whether one is wanted or all in turn."""

_COUNTS = tuple(Counts.model_fields)
_STORED = pa.struct(
    [
        pa.field("table", pa.string()),
        pa.field("key", pa.string()),
        pa.field("size_bytes", pa.int64()),
        pa.field("sha256", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("block_crc32c", pa.string()),
    ]
)
_FIELDS: list[pa.Field[Any]] = [
    pa.field("shard_id", pa.string(), nullable=False),
    pa.field("generation", pa.int32(), nullable=False),
    pa.field("shard_key", pa.string(), nullable=False),
    pa.field("num_samples", pa.int64(), nullable=False),
    *(pa.field(name, pa.int64(), nullable=False) for name in _COUNTS),
    pa.field("reasons", pa.string(), nullable=False),
    pa.field("problems", pa.string(), nullable=False),
    pa.field("tables", pa.list_(_STORED), nullable=False),
]
SNAPSHOT_SCHEMA = pa.schema(_FIELDS)


@dataclass(frozen=True, slots=True)
class CommitSummary:
    """What there is to know of a commit without its chunks and arrays.

    Attributes:
        shard_id: The shard.
        generation: Its newest committed generation.
        shard_key: Source-relative name of the shard.
        num_samples: Samples in the shard.
        counts: Samples by status, and persons.
        reasons: Quarantined samples by reason.
        problems: Damage of the shard that belongs to no sample.
        tables: The shard's rows, by table.
    """

    shard_id: str
    generation: int
    shard_key: str
    num_samples: int
    counts: Counts
    reasons: Mapping[str, int]
    problems: tuple[Problem, ...]
    tables: Mapping[str, StoredObject]


def summarize(commit: Commit) -> CommitSummary:
    """The summary of a commit."""
    return CommitSummary(
        shard_id=commit.shard_id,
        generation=commit.generation,
        shard_key=commit.shard_key,
        num_samples=commit.num_samples,
        counts=commit.counts,
        reasons=commit.reasons,
        problems=commit.problems,
        tables=commit.tables,
    )


class Summaries(Mapping[str, CommitSummary]):
    """Summaries by shard id, in its order; kept as a table, as objects they take ten times more.

    Args:
        table: Rows of `SNAPSHOT_SCHEMA`, one a shard.
    """

    def __init__(self, table: pa.Table) -> None:
        ids = _strings(table, "shard_id")
        # a snapshot is sorted, and sorting holds it twice
        if any(before > after for before, after in pairwise(ids)):
            table = table.sort_by("shard_id")
            ids.sort()
        self._table = table
        self._rows = {shard_id: row for row, shard_id in enumerate(ids)}
        self._block: tuple[int, list[CommitSummary]] = (-1, [])

    def __getitem__(self, shard_id: str) -> CommitSummary:
        number, position = divmod(self._rows[shard_id], BLOCK_ROWS)
        block = self._block
        if block[0] != number:
            block = (number, _decode(self._table.slice(number * BLOCK_ROWS, BLOCK_ROWS)))
            self._block = block
        return block[1][position]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def generations(self) -> dict[str, int]:
        """Generations by shard id, in its order."""
        column: Any = self._table.column("generation").to_pylist()
        return dict(zip(self._rows, column, strict=True))

    def table_keys(self, table: str) -> Iterator[tuple[str, str]]:
        """(shard id, key of the object) of every shard that has rows in a table, in order."""
        shard_ids = iter(self._rows)
        for batch in self._table.select(["tables"]).to_batches(max_chunksize=BATCH_ROWS):
            tables: Any = batch.column(0).to_pylist()
            for stored in tables:
                shard_id = next(shard_ids)
                for one in stored:
                    if one["table"] == table:
                        yield shard_id, one["key"]

    def stored(self, key: str) -> StoredObject | None:
        """The record of a table object by its key, or None where no newest commit names it."""
        name = keys.parse(key)
        if name is None or name.shard_id not in self._rows:
            return None
        stored = self[name.shard_id].tables.get(name.name)
        return stored if stored is not None and stored.key == key else None

    def to_parquet(self) -> bytes:
        """The bytes of a snapshot; equal summaries give equal bytes."""
        buffer = io.BytesIO()
        pq.write_table(self._table.combine_chunks(), buffer, compression="zstd")
        return buffer.getvalue()


def read_summaries(manifest: Manifest) -> Summaries:
    """The newest commit of every visible shard in short.

    Raises:
        ProtocolError: A commit that no snapshot holds is damaged.
        StorageError: The store cannot be read.
    """
    committed = manifest.generations()
    known = _known(manifest.store, committed)
    return Summaries(pa.concat_tables([known, *_read_others(manifest, committed, known)]))


def write_snapshot(manifest: Manifest, *, min_new_commits: int = MIN_NEW_COMMITS) -> str | None:
    """Write a snapshot of all commits if enough are in none.

    Args:
        manifest: The job.
        min_new_commits: Commits that make a new snapshot worth while.

    Returns:
        Its key, or None where none was needed.

    Raises:
        ProtocolError, StorageError: As for `read_summaries`.
    """
    committed = manifest.generations()
    known = _known(manifest.store, committed)
    if len(committed) - known.num_rows < min_new_commits:
        return None
    summaries = Summaries(pa.concat_tables([known, *_read_others(manifest, committed, known)]))
    data = summaries.to_parquet()
    key = keys.snapshot(len(summaries), hashlib.sha256(data).hexdigest())
    manifest.store.create(key, data)
    return key


def list_snapshots(store: Store) -> list[str]:
    """Keys of the snapshots, the one with most commits first."""
    named = ((keys.parse_snapshot(info.key), info.key) for info in store.list(keys.SNAPSHOTS))
    return [key for _, key in sorted(((n, key) for n, key in named if n), reverse=True)]


def _known(store: Store, committed: Mapping[str, int]) -> pa.Table:
    """Rows of the largest whole snapshot whose commit is the newest of its shard."""
    for key in list_snapshots(store):
        try:
            data = store.read(key)
        except MissingObjectError:
            continue
        named = keys.parse_snapshot(key)
        if named is not None and hashlib.sha256(data).hexdigest() == named[1]:
            known = _current_table(data, committed)
            if known is not None:
                return known
    return SNAPSHOT_SCHEMA.empty_table()


def _current_table(data: bytes, committed: Mapping[str, int]) -> pa.Table | None:
    """Rows of a snapshot whose commit is the newest of its shard; None where it is no snapshot."""
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        if not file.schema_arrow.equals(SNAPSHOT_SCHEMA):
            return None
        batches = file.iter_batches(BATCH_ROWS, use_threads=False)
        kept = (_current_rows(batch, committed) for batch in batches)
        return pa.Table.from_batches(kept, SNAPSHOT_SCHEMA)
    except (pa.ArrowException, OSError):  # the latter for bytes that do not unpack
        return None


def _current_rows(batch: pa.RecordBatch, committed: Mapping[str, int]) -> pa.RecordBatch:
    """The rows whose commit is the newest of its shard."""
    columns = batch.select(["shard_id", "generation"]).to_pydict()
    pairs = zip(columns["shard_id"], columns["generation"], strict=True)
    current = [committed.get(shard_id) == generation for shard_id, generation in pairs]
    return batch if all(current) else batch.filter(pa.array(current))


def _read_others(
    manifest: Manifest, committed: Mapping[str, int], known: pa.Table
) -> Iterator[pa.Table]:
    """Rows of the commits that are not known."""
    others = dict(committed)
    for shard_id in _strings(known, "shard_id"):
        others.pop(shard_id, None)
    read = (summarize(commit) for commit in manifest.read_commits(others))
    for batch in _batches(read):
        yield _encode(batch)


def _strings(table: pa.Table, name: str) -> list[str]:
    return [str(one) for one in table.column(name).to_pylist()]


def _batches(summaries: Iterable[CommitSummary]) -> Iterator[list[CommitSummary]]:
    batch: list[CommitSummary] = []
    for summary in summaries:
        batch.append(summary)
        if len(batch) == BATCH_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def _encode(summaries: list[CommitSummary]) -> pa.Table:
    rows = [
        {
            "shard_id": one.shard_id,
            "generation": one.generation,
            "shard_key": one.shard_key,
            "num_samples": one.num_samples,
            **one.counts.model_dump(),
            "reasons": json.dumps(dict(one.reasons)),
            "problems": json.dumps([asdict(problem) for problem in one.problems]),
            "tables": [
                {"table": name, **stored.model_dump()} for name, stored in one.tables.items()
            ],
        }
        for one in summaries
    ]
    return pa.Table.from_pylist(rows, SNAPSHOT_SCHEMA)


def _decode(table: pa.Table) -> list[CommitSummary]:
    return [
        CommitSummary(
            shard_id=row["shard_id"],
            generation=row["generation"],
            shard_key=row["shard_key"],
            num_samples=row["num_samples"],
            counts=Counts(**{name: row[name] for name in _COUNTS}),
            reasons=json.loads(row["reasons"]),
            problems=tuple(Problem(**one) for one in json.loads(row["problems"])),
            tables={one.pop("table"): StoredObject(**one) for one in row["tables"]},
        )
        for row in table.to_pylist()
    ]
