"""A committed job of given embeddings, class areas and keypoint scores, without pictures.

Shards are committed one by one, so that a test can add some later; keys are `<shard>-<index>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sapiens_batch.protocol import keys
from sapiens_batch.protocol.commit import build_commit
from sapiens_batch.protocol.documents import Counts, StoredObject
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.receipt import Receipt
from sapiens_batch.records import Array, ColumnField, LabelSchema, Level, Shard
from sapiens_batch.sinks import label_schema as schema_json
from sapiens_batch.sinks import parquet
from sapiens_batch.storage import Store

DIGEST = "7" * 64
CLASSES = ["Background", "Hair", "Torso"]
KEYPOINTS = ["nose", "left_eye", "right_big_toe"]


@dataclass(frozen=True)
class Row:
    """One sample: its vector (None: quarantined), and what else is to be selected by.

    Attributes:
        vector: The embedding.
        persons: Scores of the three keypoints, by person.
        areas: Frame pixels of the three classes.
        size: (height, width).
    """

    vector: Sequence[float] | Array | None
    persons: Sequence[Sequence[float]] = ((0.9, 0.7, 0.1),)
    areas: Sequence[int] = (60, 10, 30)
    size: tuple[int, int] = (100, 50)


def schemas(dimension: int) -> tuple[LabelSchema, ...]:
    vector = ColumnField("embedding", "float32", (dimension,))
    areas = ColumnField("seg_class_pixels", "int32", (3,))
    scores = ColumnField("keypoint_scores", "float32", (3,))
    return (
        LabelSchema("embedding", Level.IMAGE, (vector,), None, {"encoder_sha256": "e" * 64}),
        LabelSchema("seg", Level.IMAGE, (areas,), None, {"classes": CLASSES}),
        LabelSchema("pose", Level.PERSON, (scores,), None, {"keypoints": KEYPOINTS}),
    )


def start_job(store: Store, dimension: int, digest: str = DIGEST) -> Manifest:
    job = JobDocument(
        name="embedded",
        spec={"name": "embedded"},
        spec_digest=digest,
        schemas=tuple(schema_json.to_json(one) for one in schemas(dimension)),
    )
    return Manifest.create(store, job)


def shard_id(number: int) -> str:
    return f"{number:032x}"


def commit_shard(store: Store, number: int, rows: Sequence[Row], dimension: int) -> None:
    shard = Shard(shard_id(number), f"{number}.tar", f"/in/{number}.tar", "v", 1)
    num_bad = sum(row.vector is None for row in rows)
    num_persons = sum(len(row.persons) for row in rows if row.vector is not None)
    counts = Counts(ok=len(rows) - num_bad, quarantined=num_bad, persons=num_persons)
    receipt = Receipt(
        shard_id=shard.shard_id,
        chunk=0,
        start=0,
        stop=len(rows),
        last=True,
        write_id="0" * 32,
        counts=counts,
        reasons={"decode.truncated": num_bad} if num_bad else {},
        created="2026-01-01T00:00:00+00:00",
    )
    tables = {"images": _put(store, "images", shard, _images(shard, rows, dimension))}
    if num_persons:
        tables["persons"] = _put(store, "persons", shard, _persons(shard, rows, dimension))
    document = build_commit(
        shard=shard,
        receipts=[receipt],
        tables=tables,
        arrays={},
        spec_digest=DIGEST,
        chunk_samples=max(1, len(rows)),
    )
    assert store.create(keys.commit(shard.shard_id), document.to_bytes())


def _images(shard: Shard, rows: Sequence[Row], dimension: int) -> pa.Table:
    schema = parquet.table_schema(Level.IMAGE, schemas(dimension))
    present = np.array([row.vector is not None for row in rows])
    vectors = np.array([np.zeros(dimension) if row.vector is None else row.vector for row in rows])
    embedding, seg, _ = schemas(dimension)
    columns: dict[str, Any] = {
        "key": [f"{int(shard.shard_id, 16)}-{index}" for index in range(len(rows))],
        "shard_id": [shard.shard_id] * len(rows),
        "index": list(range(len(rows))),
        "status": ["ok" if one else "quarantined" for one in present],
        "reason": [None if one else "decode.truncated" for one in present],
        "height": [row.size[0] for row in rows],
        "width": [row.size[1] for row in rows],
        "num_persons": [0 if row.vector is None else len(row.persons) for row in rows],
        "embedding": parquet.column_array(embedding.columns[0], vectors, present),
        "seg_class_pixels": parquet.column_array(
            seg.columns[0], np.array([row.areas for row in rows]), present
        ),
    }
    return _table(columns, schema)


def _persons(shard: Shard, rows: Sequence[Row], dimension: int) -> pa.Table:
    owners = [
        (index, person, scores)
        for index, row in enumerate(rows)
        if row.vector is not None
        for person, scores in enumerate(row.persons)
    ]
    scores = np.array([one[2] for one in owners], np.float32)
    columns: dict[str, Any] = {
        "key": [f"{int(shard.shard_id, 16)}-{index}" for index, *_ in owners],
        "shard_id": [shard.shard_id] * len(owners),
        "index": [index for index, *_ in owners],
        "person": [person for _, person, _ in owners],
        "status": ["ok"] * len(owners),
        "bbox": [[0.0, 0.0, 10.0 * (person + 1), 50.0] for _, person, _ in owners],
        "keypoint_scores": parquet.column_array(schemas(dimension)[2].columns[0], scores),
    }
    return _table(columns, parquet.table_schema(Level.PERSON, schemas(dimension)))


def _table(columns: dict[str, Any], schema: pa.Schema) -> pa.Table:
    num = len(columns["key"])
    arrays = [
        pa.array(columns[field.name], field.type)
        if isinstance(columns.get(field.name), list)
        else columns.get(field.name, pa.nulls(num, field.type))
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _put(store: Store, name: str, shard: Shard, table: pa.Table) -> StoredObject:
    data = parquet.encode(table)
    key = keys.table(name, shard.shard_id, "e" * 32)
    store.create(key, data)
    return StoredObject.describe(key, data, rows=table.num_rows, blocks=True)
