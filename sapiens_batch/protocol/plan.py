"""The plan: which shards a job labels, written once per planning.

Listing the input is left to the sources, and what is still to do to the manifest. A plan is a
Parquet table of shards and a document that makes it valid, both create-only: two drivers that plan
at once end up with the same plan. Later plans only add shards (0001 and so on).
"""

from __future__ import annotations

import hashlib
import io
import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from sapiens_batch.errors import ProtocolError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.documents import Count, Document, Hex32, Sha256, now
from sapiens_batch.records import FORMAT_VERSION, Shard
from sapiens_batch.storage import MissingObjectError, Store, create_or_read

BATCH_SHARDS = 4096
_PLAN_FIELDS: list[pa.Field[Any]] = [
    pa.field("shard_id", pa.string(), nullable=False),
    pa.field("key", pa.string(), nullable=False),
    pa.field("uri", pa.string(), nullable=False),
    pa.field("version", pa.string(), nullable=False),
    pa.field("size_bytes", pa.int64(), nullable=False),
    pa.field("members", pa.list_(pa.string()), nullable=False),
    pa.field("fingerprints", pa.list_(pa.string()), nullable=False),
]
PLAN_SCHEMA = pa.schema(_PLAN_FIELDS)


class PlanDocument(Document):
    """What one planning found.

    Attributes:
        format_version: Version of this document.
        number: 0 for the first plan of a job.
        num_shards: Rows of the plan table.
        size_bytes: Sum of the shards' sizes.
        sha256: Digest of the plan table's bytes.
        write_id: Who planned, unique; part of the table's name.
        source: The address or addresses that were listed, without credentials.
        created: ISO 8601 time in UTC.
    """

    format_version: Annotated[int, Field(ge=1, le=FORMAT_VERSION)] = FORMAT_VERSION
    number: Count
    num_shards: Count
    size_bytes: Count
    sha256: Sha256
    write_id: Hex32
    source: tuple[str, ...] = ()
    created: str


@dataclass(frozen=True, slots=True)
class PlanDrift:
    """How the listed input differs from the planned one.

    Attributes:
        new: Shards whose key was not planned.
        changed: (planned, listed) shards of one key whose version differs.
        missing: Planned shards whose key is not listed any more.
    """

    new: tuple[Shard, ...]
    changed: tuple[tuple[Shard, Shard], ...]
    missing: tuple[Shard, ...]

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.missing)


def write_plan(
    store: Store, shards: Iterable[Shard], *, number: int = 0, source: Iterable[str] = ()
) -> PlanDocument:
    """Write a plan, or keep the one that another driver wrote under this number.

    The table has a name of its own: one that was found there would have no digest to be checked by
    (I8). Memory holds the compressed table (100 bytes a shard, more with members), not the shards.

    Raises:
        ProtocolError: A shard id occurs twice: two inputs have the same key and version.
        StorageError: The store refused.
    """
    data = _encode(shards)
    sizes = pq.read_table(io.BytesIO(data), columns=["size_bytes"])["size_bytes"].to_numpy()
    document = PlanDocument(
        number=number,
        num_shards=len(sizes),
        size_bytes=int(sizes.sum()),
        sha256=hashlib.sha256(data).hexdigest(),
        write_id=uuid.uuid4().hex,
        source=tuple(source),
        created=now(),
    )
    document_key = keys.plan_document(number)
    if not store.create(keys.plan_table(number, document.write_id), data):
        raise ProtocolError(f"{document_key}: the name of a new plan table is taken")
    found, _ = create_or_read(store, document_key, document.to_bytes())
    return PlanDocument.from_bytes(found, document_key)


def list_plans(store: Store, known: Sequence[PlanDocument] = ()) -> list[PlanDocument]:
    """The valid plans of a job, in order.

    Args:
        store: The job directory.
        known: Those that were read before.

    Raises:
        ProtocolError: A plan document is damaged or a number is missing.
    """
    listed = [keys.parse_plan_document(info.key) for info in store.list(keys.PLAN)]
    newest = max((number for number in listed if number is not None), default=-1)
    found = list(known)
    # by number, because a listing may lag behind what this process just wrote (I9)
    while True:
        key = keys.plan_document(len(found))
        try:
            document = PlanDocument.from_bytes(store.read(key), key)
        except MissingObjectError:
            break
        if document.number != len(found):
            raise ProtocolError(f"{key}: is plan {document.number}; it was renamed, restore it")
        found.append(document)
    if newest >= len(found):
        raise ProtocolError(
            f"{keys.plan_document(newest)}: plan number {newest} found where {len(found)} was "
            "expected; a plan was removed or renamed, restore it"
        )
    return found


def read_plan(store: Store, document: PlanDocument) -> Iterator[Shard]:
    """Stream the shards of a plan in their order.

    Raises:
        ProtocolError: The table is not the one that the document describes.
    """
    key = keys.plan_table(document.number, document.write_id)
    data = store.read(key)
    if hashlib.sha256(data).hexdigest() != document.sha256:
        raise ProtocolError(f"{key}: checksum differs from its document; the plan is damaged")
    for batch in pq.ParquetFile(io.BytesIO(data)).iter_batches(batch_size=BATCH_SHARDS):
        for row in batch.to_pylist():
            lists = {name: tuple(row[name]) for name in ("members", "fingerprints")}
            yield Shard(**{**row, **lists})


def compare(planned: Iterable[Shard], listed: Iterable[Shard]) -> PlanDrift:
    """Compare inputs by key, then version."""
    old: Mapping[str, Shard] = {shard.key: shard for shard in planned}
    new: list[Shard] = []
    changed: list[tuple[Shard, Shard]] = []
    seen: set[str] = set()
    for shard in listed:
        seen.add(shard.key)
        before = old.get(shard.key)
        if before is None:
            new.append(shard)
        elif before.shard_id != shard.shard_id:
            changed.append((before, shard))
    missing = tuple(shard for key, shard in old.items() if key not in seen)
    return PlanDrift(tuple(new), tuple(changed), missing)


def _encode(shards: Iterable[Shard]) -> bytes:
    """The plan table; equal shards in equal order give equal bytes."""
    buffer = io.BytesIO()
    seen: set[str] = set()
    iterator = iter(shards)
    with pq.ParquetWriter(buffer, PLAN_SCHEMA, compression="zstd", compression_level=3) as writer:
        while batch := list(itertools.islice(iterator, BATCH_SHARDS)):
            for shard in batch:
                if shard.shard_id in seen:
                    raise ProtocolError(
                        f"shard {shard.shard_id} ({shard.key}) is listed twice; give every input "
                        "its own key"
                    )
                seen.add(shard.shard_id)
            writer.write_table(pa.Table.from_pylist([_row(one) for one in batch], PLAN_SCHEMA))
    return buffer.getvalue()


def _row(shard: Shard) -> dict[str, Any]:
    return {name: getattr(shard, name) for name in PLAN_SCHEMA.names}
