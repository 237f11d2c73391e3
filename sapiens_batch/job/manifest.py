"""The manifest of a job: its document, plan, receipts and commits, as found in a store.

Reads and decides; labeling and sealing is left to the pipeline. What is done follows from listed
keys alone, so that opening a job costs two listings. Nothing here changes an object (I2, I6).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, TypeVar

from pydantic import Field

from sapiens_batch.errors import DriftError, ProtocolError, StorageError
from sapiens_batch.job import schema
from sapiens_batch.job.commit import Commit
from sapiens_batch.job.plan import PlanDocument, list_plans, read_plan
from sapiens_batch.job.receipt import FORMAT_VERSION, Document, Receipt, Sha256, now
from sapiens_batch.records import LabelSchema, Shard
from sapiens_batch.storage import MissingObjectError, Store, keys

# Object stores answer in tens of milliseconds whatever the load; 16 requests in flight keep a
# driver below the rates at which they push back.
READ_THREADS = 16

Kind = TypeVar("Kind", Commit, Receipt)


class JobDocument(Document):
    """`job.json`: everything that binds a job directory to what it was made by.

    Attributes:
        format_version: Version of the job directory's format.
        name: The job's name.
        created: ISO 8601 time in UTC.
        spec: The resolved spec as JSON values, without secrets.
        spec_digest: Digest of the part of the spec that changes labels.
        schemas: Label schemas as JSON values, in the order of their tasks.
        extra_columns: Columns of the source that `images` keeps.
        capabilities: What the output store was probed to do.
        licences: Licence notes by checkpoint.
        versions: Versions of the packages that made the job, for people.
    """

    format_version: Annotated[int, Field(ge=1, le=FORMAT_VERSION)] = FORMAT_VERSION
    name: str
    created: str = Field(default_factory=now)
    spec: dict[str, Any]
    spec_digest: Sha256
    schemas: tuple[dict[str, Any], ...]
    extra_columns: tuple[str, ...] = ()
    capabilities: dict[str, Any] = Field(default_factory=dict)
    licences: dict[str, str] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)

    @property
    def label_schemas(self) -> tuple[LabelSchema, ...]:
        """The label schemas as records."""
        return tuple(schema.from_json(one) for one in self.schemas)


@dataclass(frozen=True, slots=True)
class ShardTodo:
    """A planned shard without a commit.

    Attributes:
        shard: The shard.
        done_chunks: Chunks that have a receipt already.
    """

    shard: Shard
    done_chunks: frozenset[int]


class Manifest:
    """One job directory.

    Args:
        store: Where it is.
        job: Its document.
    """

    def __init__(self, store: Store, job: JobDocument) -> None:
        self.store = store
        self.job = job

    @classmethod
    def open(cls, store: Store) -> Manifest:
        """Open the job of a store.

        Raises:
            StorageError: There is no job, or it cannot be read.
            ProtocolError: `job.json` is damaged or of a newer version.
        """
        try:
            data = store.read(keys.JOB)
        except MissingObjectError as error:
            raise StorageError(
                f"{store.uri} is not a job directory: it has no {keys.JOB}; check the address, or "
                "start the job with `run`"
            ) from error
        return cls(store, JobDocument.from_bytes(data, keys.JOB))

    @classmethod
    def create(cls, store: Store, job: JobDocument) -> Manifest:
        """Start a job, or open the one that is there if it labels the same.

        Raises:
            DriftError: The store holds a job with another spec digest.
            StorageError: The store refused.
        """
        if store.create(keys.JOB, job.to_bytes()):
            return cls(store, job)
        found = cls.open(store)
        if found.job.spec_digest != job.spec_digest:
            raise DriftError(
                f"{store.uri} holds job {found.job.name!r} with spec digest "
                f"{found.job.spec_digest[:12]}, this spec has {job.spec_digest[:12]}; use another "
                "output or the job's own spec"
            )
        return found

    def plans(self) -> list[PlanDocument]:
        """The plans of the job, in order; empty before the first."""
        return list_plans(self.store)

    def shards(self) -> Iterator[Shard]:
        """Every planned shard, in plan order."""
        for document in self.plans():
            yield from read_plan(self.store, document)

    def committed_ids(self) -> set[str]:
        """Ids of visible shards (I2), from the keys of commits alone."""
        found = (keys.parse_commit(info.key) for info in self.store.list(keys.COMMITS))
        return {shard_id for shard_id in found if shard_id is not None}

    def commit(self, shard_id: str) -> Commit:
        """The commit of one shard.

        Raises:
            MissingObjectError: The shard is not committed.
            ProtocolError: The commit is damaged or belongs to another job or shard.
        """
        return self._read(Commit, keys.commit(shard_id), shard_id)

    def commits(self) -> Iterator[Commit]:
        """Every commit, by shard id.

        Raises:
            ProtocolError: As for `commit`.
        """
        found = sorted(self.committed_ids())
        yield from self._read_many(Commit, [(keys.commit(one), one) for one in found])

    def receipts(self, shard_id: str) -> list[Receipt]:
        """The receipts of one shard, by chunk.

        Raises:
            ProtocolError: A receipt is damaged or belongs elsewhere.
        """
        listed = (info.key for info in self.store.list(keys.receipts(shard_id)))
        found = [(key, shard_id) for key in listed if keys.parse_receipt(key) is not None]
        return list(self._read_many(Receipt, found))

    def todo(self) -> list[ShardTodo]:
        """Planned shards without a commit, in plan order, with the chunks that are done."""
        committed = self.committed_ids()
        done = done_chunks((info.key for info in self.store.list(keys.RECEIPTS)), committed)
        return remaining(self.shards(), committed, done)

    def _read(self, kind: type[Kind], key: str, shard_id: str) -> Kind:
        document = kind.from_bytes(self.store.read(key), key)
        if document.shard_id != shard_id:
            raise ProtocolError(f"{key}: names shard {document.shard_id}; run `verify`")
        if isinstance(document, Commit) and document.spec_digest != self.job.spec_digest:
            raise ProtocolError(
                f"{key}: spec digest {document.spec_digest[:12]} is not the job's "
                f"{self.job.spec_digest[:12]}; two jobs wrote to this directory, run `verify`"
            )
        return document

    def _read_many(self, kind: type[Kind], wanted: Iterable[tuple[str, str]]) -> Iterator[Kind]:
        """Read documents in order, some at a time so that memory stays bounded."""
        iterator = iter(wanted)
        with ThreadPoolExecutor(READ_THREADS) as pool:
            while batch := list(islice(iterator, READ_THREADS * 16)):
                yield from pool.map(lambda one: self._read(kind, one[0], one[1]), batch)


def done_chunks(
    receipt_keys: Iterable[str], committed: Collection[str]
) -> dict[str, frozenset[int]]:
    """Chunks with a receipt, by shard; receipts of committed shards are not kept.

    Args:
        receipt_keys: Keys below `receipts/`; others are skipped.
        committed: Shard ids to leave out.
    """
    found: dict[str, set[int]] = {}
    for key in receipt_keys:
        parsed = keys.parse_receipt(key)
        if parsed is not None and parsed[0] not in committed:
            found.setdefault(parsed[0], set()).add(parsed[1])
    return {shard_id: frozenset(chunks) for shard_id, chunks in found.items()}


def remaining(
    planned: Iterable[Shard], committed: Collection[str], done: Mapping[str, frozenset[int]]
) -> list[ShardTodo]:
    """What a run has to do: plan − commits − receipts, in plan order."""
    return [
        ShardTodo(shard, done.get(shard.shard_id, frozenset()))
        for shard in planned
        if shard.shard_id not in committed
    ]
