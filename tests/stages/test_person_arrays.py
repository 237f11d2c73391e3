"""Arrays of persons: each person has a row of its own that follows from its sample alone (I7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zarr as reference
from hypothesis import given
from hypothesis import strategies as st

from sapiens_batch.labelset import open_labels
from sapiens_batch.labelset.items import Size
from sapiens_batch.labelset.torch_dataset import collate
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.documents import StoredObject
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.plan import write_plan
from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.protocol.seal import seal_shard
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.records import (
    Affine,
    Array,
    ArrayField,
    Frame,
    LabelSchema,
    Level,
    Problem,
    Sample,
    TaskLabels,
)
from sapiens_batch.sinks import label_schema as schema_json
from sapiens_batch.sinks import parquet
from sapiens_batch.spec.loading import parse_spec
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.flow import LabeledChunk, PreparedPerson, TaskRows
from sapiens_batch.stages.label_rows import array_rows
from sapiens_batch.stages.write import ChunkWriter
from sapiens_batch.storage import open_store
from sapiens_batch.verify import check_job
from tests.small_tasks import CHUNK_SAMPLES, SHARD, sample

MAX_PERSONS = 3
SEG = LabelSchema(
    "seg",
    Level.PERSON,
    (),
    ArrayField((4, 3), "uint8", 255, ("y", "x"), "zstd", rows_per_sample=MAX_PERSONS),
    {"classes": ["background", "skin"]},
)
SCHEMAS = {"seg": SEG}
REFUSED = -1
"""Stands for a box that is no person."""


def labeled_chunk(
    persons: Sequence[Sequence[int] | None], *, index: int = 0, last: bool = True
) -> LabeledChunk:
    """A chunk whose samples have persons labeled with these values; None is quarantined."""
    start = index * CHUNK_SAMPLES
    found: list[PreparedPerson] = []
    values: dict[int, int] = {}
    for position, own in enumerate(persons):
        for number, value in enumerate(own or ()):
            box = np.array([2 * number, 0, 4, 4], np.float32)
            if value == REFUSED:
                one = PreparedPerson(position, number, box, None, "refused", "person.outside")
            else:
                values[len(found)] = value
                one = PreparedPerson(position, number, box, None)
            found.append(one)
    samples = tuple(
        sample(start + i, None if own is None else sum(value != REFUSED for value in own))
        for i, own in enumerate(persons)
    )
    frames = tuple(Frame(4, 3, Affine(1, 1, float(found[owner].box[0]), 0)) for owner in values)
    labels = TaskLabels({}, _filled(list(values.values())), frames, (None,) * len(values))
    header = ChunkHeader(SHARD.shard_id, index, start, start + len(samples), last)
    rows = TaskRows(labels, tuple(values))
    return LabeledChunk(header, samples, tuple(found), {"seg": rows}, {})


def values_of(array: reference.Array, rows: Iterable[int]) -> list[int]:
    """What each of some rows is filled with."""
    return [int(np.max(array[row])) for row in rows]


def _filled(values: Sequence[int]) -> Array:
    flat = np.array(values, np.uint8).reshape(-1, 1, 1)
    return np.broadcast_to(flat, (len(values), 4, 3)).copy()


@pytest.fixture
def context(tmp_path: Path) -> JobContext:
    """A job whose directory has its document and plan, so that it can be verified and read."""
    spec = parse_spec(
        {
            "name": "job",
            "source": {"format": "webdataset", "uri": "in.tar"},
            "persons": {"from": "source", "max_persons": MAX_PERSONS},
            "tasks": {"seg": {"checkpoint": "demo", "region": "person"}},
            "output": {"uri": str(tmp_path), "chunk_samples": CHUNK_SAMPLES},
        }
    )
    store = open_store(str(tmp_path))
    schemas = (schema_json.to_json(SEG),)
    digest = "0" * 64
    document = JobDocument(name="job", spec=spec.public_dict(), spec_digest=digest, schemas=schemas)
    Manifest.create(store, document)
    write_plan(store, [SHARD])
    return JobContext(spec, {}, SCHEMAS, {}, True, digest, store)


@pytest.fixture
def writer(context: JobContext) -> ChunkWriter:
    return ChunkWriter(context.store, SCHEMAS, [], CHUNK_SAMPLES)


@pytest.fixture
def first(context: JobContext, writer: ChunkWriter) -> Commit:
    """Six samples in two chunks, more persons in the first chunk than it has samples."""
    writer.write(labeled_chunk([[1, REFUSED, 2], None, [3, 4, 5], []], last=False))
    writer.write(labeled_chunk([[6], [REFUSED, 7]], index=1))
    return seal_shard(context.seal_job, ShardTodo(SHARD), {0, 1})


def test_each_person_has_the_row_that_its_sample_and_place_give(
    first: Commit, tmp_path: Path
) -> None:
    table = open_labels(str(tmp_path)).persons.to_table()
    places = zip(*(table[name].to_pylist() for name in ("index", "person", "seg_row")), strict=True)
    assert list(places) == [
        (0, 0, 0), (0, 1, None), (0, 2, 1),
        (2, 0, 6), (2, 1, 7), (2, 2, 8),
        (4, 0, 12), (5, 0, None), (5, 1, 15),
    ]  # fmt: skip
    array = first.arrays["seg"]
    assert array.shape == (6 * MAX_PERSONS, 4, 3)
    assert array.shard_rows == CHUNK_SAMPLES * MAX_PERSONS


def test_zarr_python_finds_the_labels_at_the_rows_of_the_table(
    first: Commit, tmp_path: Path
) -> None:
    array = reference.open_array(str(tmp_path / first.arrays["seg"].root), mode="r")
    values = {row: int(array[row].max()) for row in (0, 1, 6, 7, 8, 12, 15)}
    assert values == {0: 1, 1: 2, 6: 3, 7: 4, 8: 5, 12: 6, 15: 7}
    unlabeled = sorted(set(range(18)) - set(values))
    assert (array.oindex[unlabeled] == 255).all()


def test_a_job_with_arrays_of_persons_verifies(first: Commit, context: JobContext) -> None:
    assert check_job(Manifest.open(context.store)).findings == ()


def test_labels_of_persons_come_back_alone_and_over_one_another(
    first: Commit, tmp_path: Path
) -> None:
    labels = open_labels(str(tmp_path)).sample("key-2")
    assert labels is not None
    one = labels.to_source("seg", 1)
    assert one is not None
    assert one.shape == (20, 30)
    assert (one[:4, 2:5] == 4).all()
    assert (one != 255).sum() == 12
    every = labels.to_source("seg")
    assert every is not None
    # boxes begin at x = 0, 2 and 4, frames are 3 wide; the first person is on top
    assert every[0, :9].tolist() == [3, 3, 3, 4, 4, 5, 5, 255, 255]


def test_samples_that_are_not_labeled_again_keep_the_rows_of_all_their_persons(
    first: Commit, writer: ChunkWriter, context: JobContext, tmp_path: Path
) -> None:
    whole = labeled_chunk([[], [8, 9]])
    header = replace(whole.header, stop=4, last=False, generation=1, ordered=frozenset({1}))
    persons = tuple(replace(one, sample=0) for one in whole.persons)
    again = replace(whole, header=header, samples=whole.samples[1:], persons=persons)
    todo = ShardTodo(SHARD, frozenset({1}), 1, frozenset({1}))
    writer.write(again)
    second = seal_shard(context.seal_job, todo, {0})
    array = reference.open_array(str(tmp_path / second.arrays["seg"].root), mode="r")
    assert values_of(array, (0, 1, 3, 4, 6, 7, 8, 12, 15)) == [1, 2, 8, 9, 3, 4, 5, 6, 7]
    rows = open_labels(str(tmp_path)).persons.to_table(columns=["index", "seg_row"])
    assert [row for row in rows["seg_row"].to_pylist() if row is not None] == [
        0, 1, 3, 4, 6, 7, 8, 12, 15
    ]  # fmt: skip
    assert check_job(Manifest.open(context.store)).findings == ()


def test_zarr_alone_finds_every_labeled_row_after_retry_repair_and_collisions(
    first: Commit, writer: ChunkWriter, context: JobContext, tmp_path: Path
) -> None:
    def collide(chunk: LabeledChunk, died: LabeledChunk) -> None:
        """Two attempts, of which the first died between its arrays and its receipt."""
        header = chunk.header
        writer.write(replace(died, header=header))
        context.store.delete(keys.receipt(header.shard_id, header.index, header.generation))
        writer.write(chunk)

    def found() -> dict[int, int]:
        """What a Zarr reader finds at the rows that the table names; nothing is anywhere else."""
        table = open_labels(str(tmp_path)).persons.to_table()
        (root,) = set(table["seg_array"].drop_null().to_pylist())
        array = reference.open_array(str(tmp_path / root), mode="r")
        rows = table["seg_row"].drop_null().to_pylist()
        unlabeled = sorted(set(range(array.shape[0])) - set(rows))
        assert (array.oindex[unlabeled] == 255).all()
        return dict(zip(rows, values_of(array, rows), strict=True))

    for samples in ([1], None):
        Manifest.open(context.store).relabel(SHARD.shard_id, samples, cause="retry")
    retried = labeled_chunk([[8, 9]])
    header = replace(retried.header, stop=4, last=False, generation=1, ordered=frozenset({1}))
    sample_1 = (replace(retried.samples[0], sample=Sample("key-1", 1, None)),)
    died = replace(labeled_chunk([[3, 3, 3]]), samples=sample_1)
    collide(replace(retried, header=header, samples=sample_1), died)
    seal_shard(context.seal_job, ShardTodo(SHARD, frozenset({1}), 1, frozenset({1})), {0})
    assert found() == {0: 1, 1: 2, 3: 8, 4: 9, 6: 3, 7: 4, 8: 5, 12: 6, 15: 7}

    whole = [labeled_chunk([[1], [2], None, [3]], last=False), labeled_chunk([[4, 5]], index=1)]
    for chunk in whole:
        again = replace(chunk, header=replace(chunk.header, generation=2))
        collide(again, labeled_chunk([[7, 7]] * len(chunk.samples), index=chunk.header.index))
    seal_shard(context.seal_job, ShardTodo(SHARD, generation=2), {0, 1})
    assert found() == {0: 1, 3: 2, 9: 3, 12: 4, 13: 5}
    assert check_job(Manifest.open(context.store)).findings == ()


@pytest.mark.parametrize("again", [[2, 1], [2], [1], [1, 2, 3]])
def test_no_person_gets_a_row_that_was_made_for_another(
    writer: ChunkWriter, context: JobContext, tmp_path: Path, again: list[int]
) -> None:
    """A detector on another CPU may find persons in another order, or one fewer or more."""
    writer.write(labeled_chunk([[1, 2], [4]]))
    context.store.delete(keys.receipt(SHARD.shard_id, 0))
    receipt = writer.write(labeled_chunk([again, [4]]))
    assert (receipt.counts.ok, receipt.counts.persons) == (2, len(again) + 1)
    array = seal_shard(context.seal_job, ShardTodo(SHARD), {0}).arrays["seg"]
    rows = open_labels(str(tmp_path)).persons.to_table()
    assert set(rows["seg_array"].to_pylist()) == {array.root}
    assert rows["seg_row"].to_pylist() == [*range(len(again)), MAX_PERSONS]
    stored = reference.open_array(str(tmp_path / array.root), mode="r")
    absent = [255] * (MAX_PERSONS - len(again))
    assert values_of(stored, range(MAX_PERSONS + 1)) == [*again, *absent, 4]
    assert check_job(Manifest.open(context.store)).findings == ()


def test_a_person_without_finite_labels_leaves_the_others_as_they_are(
    writer: ChunkWriter, context: JobContext
) -> None:
    chunk = labeled_chunk([[1, 2]])
    rows = chunk.labels["seg"]
    problems = (Problem("label.non_finite", "person 0 gave NaN"), None)
    failed = replace(rows, labels=replace(rows.labels, problems=problems))
    receipt = writer.write(replace(chunk, labels={"seg": failed}))
    assert (receipt.counts.ok, receipt.arrays["seg"].rows) == (1, 1)


@given(
    st.lists(
        st.none() | st.lists(st.sampled_from([REFUSED, 7]), max_size=MAX_PERSONS),
        min_size=1,
        max_size=CHUNK_SAMPLES,
    ),
    st.integers(0, 5),
)
def test_rows_never_collide_and_never_leave_their_sample(
    persons: list[list[int] | None], index: int
) -> None:
    chunk = labeled_chunk(persons, index=index)
    rows, data = array_rows(chunk, SEG)
    assert len(rows) == len(set(rows)) == len(data)
    owners = [one.sample for one in chunk.persons if one.status == "ok"]
    assert [row // MAX_PERSONS for row in rows] == owners


@pytest.mark.parametrize("rows", [[6, 6], [0, 7], [9, 7]], ids=["twice", "another's", "beyond"])
def test_a_table_that_points_at_wrong_rows_is_found(
    first: Commit, context: JobContext, rows: list[int]
) -> None:
    """Persons 0 and 1 of sample 2 have rows 6 and 7."""
    stored = first.tables["persons"]
    table = parquet.decode(context.store.read(stored.key))
    column = table["seg_row"].to_pylist()
    column[3:5] = rows
    wrong = table.set_column(
        table.schema.get_field_index("seg_row"),
        table.schema.field("seg_row"),
        pa.array(column, pa.int64()),
    )
    data = parquet.encode(wrong)
    key = stored.key.replace(stored.key[-40:-8], "f" * 32)
    context.store.create(key, data)
    tables = {**first.tables, "persons": StoredObject.describe(key, data, rows=stored.rows)}
    forged = first.model_copy(update={"tables": tables})
    context.store.delete(keys.commit(SHARD.shard_id, 0))
    context.store.create(keys.commit(SHARD.shard_id, 0), forged.to_bytes())
    found = check_job(Manifest.open(context.store)).findings
    assert any("seg_row" in one.message for one in found), found


@pytest.mark.parametrize("size", ["stored", "frame", "source"])
def test_samples_without_persons_have_the_same_items_as_others(
    first: Commit, tmp_path: Path, size: Size
) -> None:
    dataset = open_labels(str(tmp_path)).to_torch(["seg"], size=size)
    items = {item["key"]: item for item in (dataset[n] for n in range(5))}
    counts = {key: len(item["seg"]) for key, item in items.items()}
    assert counts == {"key-0": 2, "key-2": 3, "key-3": 0, "key-4": 1, "key-5": 1}
    batch = collate([items["key-3"], items["key-2"]])
    assert [len(one) for one in batch["seg"]] == [0, 3]
    if size == "source":
        assert items["key-3"]["seg"].shape == (0, 20, 30)
