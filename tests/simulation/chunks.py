"""Labels of a simulated chunk as bytes: JSON in the place of Zarr and Arrow, which costs little.

`encoded_chunk` is what the stages do between labeling and `put_chunk`, rows of an earlier
generation included; `JsonTables` is the `TableFormat` that seals such rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from sapiens_batch.protocol.documents import Counts
from sapiens_batch.protocol.earlier import newest_commit, read_base
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.protocol.put import ChunkHeader, EncodedArray, EncodedRows, Tally
from sapiens_batch.records import LabelSchema, Level, Status, TaskName
from sapiens_batch.sinks.tables import SealedTable
from sapiens_batch.storage import Store
from tests.simulation.truth import MAX_PERSONS, NORMAL, SEG, Label, Truth

Row = dict[str, Any]

SCHEMAS: Final[dict[TaskName, LabelSchema]] = {"seg": SEG, "normal": NORMAL}
JOB: Final = JobDocument(
    name="simulated",
    created="2027-01-01T00:00:00+00:00",
    spec={},
    spec_digest="5" * 64,
    schemas=(),
)
REASON: Final = "decode.truncated"


class JsonTables:
    """Tables as JSON lists of rows."""

    def seal(
        self,
        level: Level,
        sections: Sequence[bytes],
        roots: Mapping[str, str],
        *,
        base: bytes | None = None,
        kept: Collection[int] = (),
    ) -> SealedTable | None:
        """See `TableFormat.seal`."""
        rows: list[Row] = [row for section in sections for row in json.loads(section)]
        if base is not None:
            rows += [row for row in json.loads(base) if row["index"] in kept]
        if not rows and level is not Level.IMAGE:
            return None
        task = "seg" if level is Level.IMAGE else "normal"
        for row in rows:
            row[f"{task}_array"] = None if row[f"{task}_row"] is None else roots.get(task)
        rows.sort(key=lambda row: (row["index"], row.get("person", 0)))
        statuses = Counter(row["status"] for row in rows)
        quarantined = statuses[str(Status.QUARANTINED)]
        reasons = {REASON: quarantined} if quarantined else {}
        return SealedTable(json.dumps(rows).encode(), len(rows), statuses, reasons)


class _Chunk:
    """The rows of a chunk while they are put together."""

    def __init__(self) -> None:
        self.images: list[Row] = []
        self.persons: list[Row] = []
        self.arrays: dict[str, dict[int, int]] = {task: {} for task in SCHEMAS}

    def add_label(self, label: Label, start: int) -> None:
        """Add what an attempt found in a sample."""
        row = None if label.status is Status.QUARANTINED else label.index
        image = {"index": label.index, "status": str(label.status), "tag": label.tag}
        self.images.append({**image, "num_persons": label.persons, "seg_row": row})
        if row is not None:
            self.arrays["seg"][row - start] = label.tag
        for number in range(label.persons):
            place = label.index * MAX_PERSONS + number
            person = {"index": label.index, "person": number, "status": str(Status.OK)}
            self.persons.append({**person, "tag": label.tag, "normal_row": place})
            self.arrays["normal"][place - start * MAX_PERSONS] = label.tag

    def add_earlier(self, store: Store, header: ChunkHeader, kept: Collection[int]) -> None:
        """Add what an earlier generation has of samples that were not ordered, checked first."""
        base = newest_commit(store, header.shard_id, before=header.generation)
        for table, rows in (("images", self.images), ("persons", self.persons)):
            if table in base.tables:
                found = json.loads(read_base(store, base.tables[table]))
                rows += [row for row in found if row["index"] in kept]
            rows.sort(key=lambda row: (row["index"], row.get("person", 0)))
        for task, array in base.arrays.items():
            per_sample = array.shard_rows // 2
            stored = array.by_chunk()[header.index]
            for position, tag in json.loads(read_base(store, stored)):
                if header.start + position // per_sample in kept:
                    self.arrays[task][position] = tag


def encoded_chunk(
    truth: Truth, store: Store, header: ChunkHeader, born: int
) -> tuple[dict[str, Callable[[], EncodedArray]], dict[str, EncodedRows], Tally]:
    """Label a chunk: what `put_chunk` takes.

    Args:
        truth: What attempts find.
        store: The job directory.
        header: The chunk.
        born: Calls of all actors so far.

    Raises:
        ProtocolError: The generation before is damaged.
        StorageError: It cannot be read.
    """
    chunk = _Chunk()
    samples = range(header.start, header.stop)
    ordered = samples if header.ordered is None else sorted(header.ordered)
    for index in ordered:
        chunk.add_label(truth.label(header.shard_id, index, born), header.start)
    if header.ordered is not None and (kept := set(samples) - header.ordered):
        chunk.add_earlier(store, header, kept)
    statuses = Counter(row["status"] for row in chunk.images)
    quarantined = statuses[str(Status.QUARANTINED)]
    reasons = {REASON: quarantined} if quarantined else {}
    rows = {"images": EncodedRows(_encoded(chunk.images), len(chunk.images))}
    if chunk.persons:
        rows["persons"] = EncodedRows(_encoded(chunk.persons), len(chunk.persons))
    arrays = {} if not samples else {task: _array(one) for task, one in chunk.arrays.items()}
    return arrays, rows, Tally(Counts.of(statuses, len(chunk.persons)), reasons)


def _array(values: Mapping[int, int]) -> Callable[[], EncodedArray]:
    return lambda: EncodedArray(_encoded(sorted(values.items())), len(values), 1)


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode()
