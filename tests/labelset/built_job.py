"""A small committed job, put together from the sinks and documents without the pipeline.

Two shards of six samples in chunks of four. Sample 1 of each shard is quarantined, sample 2 is
empty, the others have one person, sample 3 has two. Keys are the same in both shards but for
`only-0` and `only-1` at index 5. A third shard is labeled but not committed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from sapiens_batch.protocol import keys
from sapiens_batch.protocol.commit import Commit, CommittedArray, build_commit
from sapiens_batch.protocol.documents import Counts, StoredObject
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.orders import RelabelOrder
from sapiens_batch.protocol.plan import write_plan
from sapiens_batch.protocol.receipt import Receipt, RowSection
from sapiens_batch.records import Array, LabelSchema, Level, Shard
from sapiens_batch.sinks import label_schema as schema_json
from sapiens_batch.sinks import parquet, zarr
from sapiens_batch.storage import Store
from tests.sinks.schemas import EMBEDDING, NORMAL, POSE, SEG

DIGEST = "5" * 64
CHUNK_SAMPLES = 4
NUM_SAMPLES = 6
STATUS = ["ok", "quarantined", "empty", "ok", "ok", "ok"]
PERSONS = [1, 0, 0, 2, 1, 1]
SCHEMAS = (SEG, NORMAL, EMBEDDING, POSE)
SHARDS = [Shard(f"{n}{n}" * 16, f"{n}.tar", f"/in/{n}.tar", "v", 10) for n in range(3)]
# A frame of 4 x 3 pixels in the 8 x 6 row, of a source image of 8 x 6 pixels.
AFFINE = [2.0, 2.0, 0.5, 0.5]
LABELED = [index for index in range(NUM_SAMPLES) if STATUS[index] != "quarantined"]


def seg_row(shard: int, index: int) -> Array:
    row = np.full((8, 6), 255, np.uint8)
    row[:4, :3] = np.arange(12).reshape(4, 3) + 20 * shard + index
    return row


def normal_row(shard: int, index: int) -> Array:
    row = np.full((3, 8, 6), np.nan, np.float16)
    vectors = np.random.default_rng(10 * shard + index).normal(size=(3, 4, 3))
    row[:, :4, :3] = vectors / np.linalg.norm(vectors, axis=0)
    return row


def write_job(store: Store, committed: tuple[int, ...] = (0, 1)) -> None:
    """Write the job; shards that are not committed leave their objects as orphans."""
    job = JobDocument(
        name="built",
        spec={"name": "built"},
        spec_digest=DIGEST,
        schemas=tuple(schema_json.to_json(one) for one in SCHEMAS),
        extra_columns=("caption",),
    )
    Manifest.create(store, job)
    write_plan(store, SHARDS)
    for number, shard in enumerate(SHARDS):
        _write_shard(store, number, shard, commit=number in committed)


def write_generation(
    store: Store, number: int, generation: int, chunks: tuple[int, ...], base: Commit | None
) -> Commit:
    """Label chunks of a shard again, with the same labels, and commit them as a generation."""
    shard = SHARDS[number]
    tables = _write_tables(store, number, shard, f"{generation:032x}", generation)
    arrays = {
        schema.task: _write_array(store, number, shard, schema, generation)
        for schema in (SEG, NORMAL)
    }
    document = build_commit(
        shard=shard,
        receipts=[_receipt(shard, chunk, generation) for chunk in chunks],
        tables=tables,
        arrays=arrays,
        spec_digest=DIGEST,
        chunk_samples=CHUNK_SAMPLES,
        generation=generation,
        counts=Counts(ok=4, empty=1, quarantined=1, persons=5),
        reasons={"decode.truncated": 1},
        base=base,
    )
    _order(store, shard, generation)
    store.create(keys.commit(shard.shard_id, generation), document.to_bytes())
    return document


def _order(store: Store, shard: Shard, generation: int) -> None:
    """The orders up to a generation, as far as there are none: every generation has one."""
    for number in range(1, generation + 1):
        order = RelabelOrder(
            shard_id=shard.shard_id, generation=number, cause="retry", samples=None,
            write_id="0" * 32, created="2026-01-01T00:00:00+00:00",
        )  # fmt: skip
        store.create(keys.relabel_order(shard.shard_id, number), order.to_bytes())


def write_receipt(store: Store, number: int, chunk: int) -> Receipt:
    """The receipt of a chunk of an open shard, with rows and arrays that hold something."""
    shard = SHARDS[number]
    sections = {"images": b"rows of images", "persons": b"rows of persons"}
    rows = {table: RowSection.describe(data, rows=4) for table, data in sections.items()}
    arrays = {
        schema.task: _write_array(store, number, shard, schema).by_chunk()[chunk]
        for schema in (SEG, NORMAL)
    }
    receipt = _receipt(shard, chunk).model_copy(update={"rows": rows, "arrays": arrays})
    store.create(keys.receipt(shard.shard_id, chunk), receipt.pack(sections))
    return receipt


def _write_shard(store: Store, number: int, shard: Shard, *, commit: bool) -> None:
    arrays = {schema.task: _write_array(store, number, shard, schema) for schema in (SEG, NORMAL)}
    tables = _write_tables(store, number, shard, "e" * 32)
    if commit:
        document = build_commit(
            shard=shard,
            receipts=[_receipt(shard, 0), _receipt(shard, 1)],
            tables=tables,
            arrays=arrays,
            spec_digest=DIGEST,
            chunk_samples=CHUNK_SAMPLES,
        )
        store.create(keys.commit(shard.shard_id), document.to_bytes())


def _write_tables(
    store: Store, number: int, shard: Shard, write_id: str, generation: int = 0
) -> dict[str, StoredObject]:
    rows = {"images": _images(number, generation), "persons": _persons(number)}
    return {
        name: _put(store, keys.table(name, shard.shard_id, write_id, generation), table)
        for name, table in rows.items()
    }


def _write_array(
    store: Store,
    number: int,
    shard: Shard,
    schema: LabelSchema,
    generation: int = 0,
) -> CommittedArray:
    assert schema.array is not None
    make = seg_row if schema is SEG else normal_row
    root = keys.array(schema.task, shard.shard_id, generation)
    written = []
    for chunk in (0, 1):
        mine = [index for index in LABELED if index // CHUNK_SAMPLES == chunk]
        data = np.array([make(number, index) for index in mine])
        positions = [index % CHUNK_SAMPLES for index in mine]
        encoded = zarr.encode_shard(schema.array, positions, data, CHUNK_SAMPLES)
        ndim = len(schema.array.row_shape)
        key = keys.array_chunk(root, chunk, ndim)
        store.create(key, encoded)
        written.append(StoredObject.describe(key, encoded, rows=len(mine)))
    key = keys.array_document(root)
    metadata = zarr.array_metadata(schema, NUM_SAMPLES, CHUNK_SAMPLES)
    store.create(key, metadata)
    return CommittedArray(
        root=root,
        shape=(NUM_SAMPLES, *schema.array.row_shape),
        shard_rows=CHUNK_SAMPLES,
        metadata=StoredObject.describe(key, metadata),
        chunks=tuple(written),
    )


def _images(number: int, generation: int) -> pa.Table:
    schema = parquet.table_schema(Level.IMAGE, SCHEMAS, ["caption"])
    labeled = [status != "quarantined" for status in STATUS]
    present = np.array(labeled)
    rows = pa.array([index if labeled[index] else None for index in range(NUM_SAMPLES)], pa.int64())
    affines = np.tile(np.array(AFFINE), (NUM_SAMPLES, 1))
    columns: dict[str, Any] = {
        "key": [f"k{index}" for index in range(5)] + [f"only-{number}"],
        "shard_id": [SHARDS[number].shard_id] * NUM_SAMPLES,
        "index": list(range(NUM_SAMPLES)),
        "status": STATUS,
        "reason": ["decode.truncated" if status == "quarantined" else None for status in STATUS],
        "height": [8] * NUM_SAMPLES,
        "width": [6] * NUM_SAMPLES,
        "num_persons": PERSONS,
        "caption": ["a photo"] * NUM_SAMPLES,
        "embedding": parquet.column_array(
            EMBEDDING.columns[0], np.tile(np.float16([1, 0, 0, 0]), (NUM_SAMPLES, 1)), present
        ),
    }
    for schema_with_array in (SEG, NORMAL):
        row, root, height, width, affine = schema_with_array.row_columns
        place = keys.array(schema_with_array.task, SHARDS[number].shard_id, generation)
        columns[row.name] = rows
        columns[root.name] = [place if one else None for one in labeled]
        columns[height.name] = [4 if one else None for one in labeled]
        columns[width.name] = [3 if one else None for one in labeled]
        columns[affine.name] = parquet.column_array(affine, affines, present)
    return _table(columns, schema)


def _persons(number: int) -> pa.Table:
    owners = [(index, n) for index in range(NUM_SAMPLES) for n in range(PERSONS[index])]
    num = len(owners)
    keypoints = np.zeros((num, 5, 2), np.float32) + np.arange(num, dtype=np.float32)[:, None, None]
    schema = parquet.table_schema(Level.PERSON, SCHEMAS)
    columns = {
        "key": [f"k{index}" if index < 5 else f"only-{number}" for index, _ in owners],
        "shard_id": [SHARDS[number].shard_id] * num,
        "index": [index for index, _ in owners],
        "person": [person for _, person in owners],
        "bbox": [[0.0, 0.0, 5.0, 7.0]] * num,
        "status": ["ok"] * num,
        "keypoints": parquet.column_array(POSE.columns[0], keypoints),
        "keypoint_scores": parquet.column_array(POSE.columns[1], keypoints[..., 0]),
    }
    return _table(columns, schema)


def _table(columns: dict[str, Any], schema: pa.Schema) -> pa.Table:
    num = len(columns["key"])
    arrays = [
        pa.array(columns[field.name], field.type)
        if isinstance(columns.get(field.name), list)
        else columns.get(field.name, pa.nulls(num, field.type))
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _put(store: Store, key: str, table: pa.Table) -> StoredObject:
    data = parquet.encode(table)
    store.create(key, data)
    return StoredObject.describe(key, data, rows=table.num_rows, blocks=True)


def _receipt(shard: Shard, chunk: int, generation: int = 0) -> Receipt:
    start, stop = chunk * CHUNK_SAMPLES, min((chunk + 1) * CHUNK_SAMPLES, NUM_SAMPLES)
    statuses = STATUS[start:stop]
    counts = Counts(
        ok=statuses.count("ok"),
        empty=statuses.count("empty"),
        quarantined=statuses.count("quarantined"),
        persons=sum(PERSONS[start:stop]),
    )
    return Receipt(
        shard_id=shard.shard_id,
        generation=generation,
        chunk=chunk,
        start=start,
        stop=stop,
        last=chunk == 1,
        write_id=f"{chunk:032x}",
        counts=counts,
        reasons={"decode.truncated": counts.quarantined} if counts.quarantined else {},
        created="2026-01-01T00:00:00+00:00",
    )
