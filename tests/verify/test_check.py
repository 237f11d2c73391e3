"""What a check finds in a sound, an unfinished and a damaged job (I1 to I5)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sapiens_batch.protocol import keys
from sapiens_batch.protocol.documents import StoredObject
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.storage import Store
from sapiens_batch.storage.memory import MemoryStore
from sapiens_batch.verify import Fault, Report, check_job
from tests.labelset.built_job import SHARDS, write_generation, write_job, write_receipt
from tests.sealed import sealed
from tests.verify.tampering import overwrite

FIRST, SECOND, OPEN = (shard.shard_id for shard in SHARDS)


@pytest.fixture
def store() -> Store:
    store = MemoryStore(uuid.uuid4().hex)
    write_job(store)
    return store


@pytest.fixture
def complete() -> Store:
    store = MemoryStore(uuid.uuid4().hex)
    write_job(store, committed=(0, 1, 2))
    return store


def check(store: Store, **options: Any) -> Report:
    return check_job(Manifest.open(store), **options)


def rewrite_commit(store: Store, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(store.read(keys.commit(FIRST)))
    change(document)
    overwrite(store, keys.commit(FIRST), sealed(document))


def named_objects(store: Store) -> list[StoredObject]:
    commit = Manifest.open(store).commit(FIRST)
    arrays = commit.arrays.values()
    return [
        *commit.tables.values(),
        *(one.metadata for one in arrays),
        *(chunk for one in arrays for chunk in one.chunks),
    ]


def test_a_sound_job_has_no_findings_and_lists_what_is_missing(store: Store) -> None:
    report = check(store)
    assert report.findings == ()
    assert report.missing_shards == ("2.tar",)
    assert (report.num_shards, report.committed_shards) == (3, 2)
    assert report.counts.samples == 12
    assert report.checked_objects == 2 * 8
    assert report.exit_code == 5


def test_a_complete_job_ends_with_zero(complete: Store) -> None:
    report = check(complete)
    assert (report.exit_code, report.damaged, report.missing_shards) == (0, False, ())
    assert report.orphans == {}


def test_a_flipped_byte_in_any_named_object_is_found(store: Store) -> None:
    for stored in named_objects(store):
        whole = store.read(stored.key)
        for position in (0, len(whole) // 2, len(whole) - 1):
            damaged = bytearray(whole)
            damaged[position] ^= 0x10
            overwrite(store, stored.key, damaged)
            (finding,) = check(store).findings
            assert (finding.fault, finding.key) == (Fault.OBJECT_CHECKSUM, stored.key)
            assert finding.shard_id == FIRST
        overwrite(store, stored.key, whole)
    assert not check(store).damaged


def test_a_lost_and_a_cut_object_are_found_without_reading(store: Store) -> None:
    lost, cut = named_objects(store)[0], named_objects(store)[-1]
    store.delete(lost.key)
    overwrite(store, cut.key, store.read(cut.key)[:-1])
    report = check(store, sample_fraction=0.0)
    assert {(one.fault, one.key) for one in report.findings} == {
        (Fault.OBJECT_MISSING, lost.key),
        (Fault.OBJECT_SIZE, cut.key),
    }
    assert report.checked_objects == 0
    assert report.exit_code == 1


def test_a_sample_reads_a_share_of_the_objects(store: Store) -> None:
    assert 0 < check(store, sample_fraction=0.5).checked_objects < 16


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda one: one["counts"].update(ok=3, empty=2), Fault.COMMIT_COUNTS),
        (lambda one: one.update(reasons={"decode.corrupt": 1}), Fault.COMMIT_COUNTS),
        (lambda one: one.update(shard_version="w"), Fault.COMMIT_DAMAGED),
        (lambda one: one.update(spec_digest="6" * 64), Fault.COMMIT_DAMAGED),
        (lambda one: one.update(chunks=[[0, 4, "0" * 32]]), Fault.COMMIT_DAMAGED),
        (lambda one: one.update(unknown=1), Fault.COMMIT_DAMAGED),
        (lambda one: one["tables"]["images"].update(rows=7), Fault.TABLE_ROWS),
        (lambda one: one["arrays"]["seg"]["chunks"].pop(), Fault.ARRAY_ROWS),
        (lambda one: one["arrays"].pop("seg"), Fault.ARRAY_ROWS),
        (lambda one: one["arrays"]["seg"].update(shape=[7, 8, 6]), Fault.ARRAY_SHAPE),
        (lambda one: one["arrays"]["seg"]["chunks"][0].update(rows=4), Fault.ARRAY_ROWS),
    ],
)
def test_a_commit_that_contradicts_its_objects_is_found(
    store: Store, change: Callable[[dict[str, Any]], object], fault: Fault
) -> None:
    rewrite_commit(store, change)
    assert fault in {one.fault for one in check(store).findings}


def test_a_table_of_another_shard_is_found(store: Store) -> None:
    other = Manifest.open(store).commit(SECOND).tables["images"].model_dump()
    rewrite_commit(store, lambda one: one["tables"].update(images=other))
    assert {one.fault for one in check(store).findings} == {Fault.TABLE_ROWS}


def test_a_commit_of_an_unplanned_shard_is_found(store: Store) -> None:
    commit = Manifest.open(store).commit(FIRST)
    stranger = commit.model_copy(update={"shard_id": "c" * 32})
    store.create(keys.commit("c" * 32), stranger.to_bytes())
    assert Fault.COMMIT_UNPLANNED in {one.fault for one in check(store).findings}


def test_a_damaged_plan_is_found(store: Store) -> None:
    key = keys.plan_table(0, Manifest.open(store).plans()[0].write_id)
    overwrite(store, key, store.read(key)[:-1] + b"x")
    (finding,) = check(store).findings
    assert (finding.fault, finding.shard_id) == (Fault.PLAN_DAMAGED, None)


def test_receipts_of_an_open_shard_are_no_damage(store: Store) -> None:
    write_receipt(store, 2, 0)
    report = check(store)
    assert report.findings == ()
    assert report.missing_shards == ("2.tar",)


def test_a_lost_object_and_a_damaged_receipt_of_an_open_shard_are_found(store: Store) -> None:
    receipt = write_receipt(store, 2, 0)
    store.delete(receipt.arrays["seg"].key)
    (finding,) = check(store).findings
    assert (finding.fault, finding.shard_id) == (Fault.OBJECT_MISSING, OPEN)
    overwrite(store, keys.receipt(OPEN, 0), b"{")
    (finding,) = check(store).findings
    assert (finding.fault, finding.samples) == (Fault.RECEIPT_DAMAGED, None)


def test_receipts_that_cannot_be_of_one_shard_are_found(store: Store) -> None:
    receipt = write_receipt(store, 2, 0)
    moved = receipt.model_copy(update={"chunk": 1, "start": 3, "stop": 7})
    sections = {"images": b"rows of images", "persons": b"rows of persons"}
    store.create(keys.receipt(OPEN, 1), moved.pack(sections))
    assert Fault.RECEIPTS_CONTRADICT in {one.fault for one in check(store).findings}


def test_what_nothing_names_is_counted_by_what_it_is(store: Store) -> None:
    store.create(keys.table("images", FIRST, "0" * 32), b"lost race")
    store.create(keys.receipt(FIRST, 0), b"{}")
    store.create("notes.txt", b"mine")
    orphans = check(store).orphans
    assert {name: pile.objects for name, pile in orphans.items()} == {
        "orphan": 1,
        "spent": 1,
        "foreign": 1,
        "in_flight": 2,
    }
    assert orphans["foreign"].examples == ("notes.txt",)
    assert orphans["orphan"].size_bytes == 9


def test_only_the_newest_generation_is_checked(store: Store) -> None:
    base = Manifest.open(store).commit(FIRST)
    write_generation(store, 0, 1, (0, 1), None)
    overwrite(store, base.tables["images"].key, b"damaged, but read by nobody")
    assert check(store).findings == ()


def test_objects_of_earlier_generations_are_named(store: Store) -> None:
    write_generation(store, 0, 1, (1,), Manifest.open(store).commit(FIRST))
    report = check(store)
    assert report.findings == ()
    assert "orphan" not in report.orphans


def test_drift_of_the_input_is_told_apart_from_damage(complete: Store) -> None:
    listed = [replace(SHARDS[0], version="w", shard_id="9" * 32), SHARDS[1]]
    report = check(complete, source=listed)
    assert report.drift is not None
    assert report.drift.changed == ("0.tar",)
    assert report.drift.missing == ("2.tar",)
    assert report.exit_code == 3
    assert check(complete, source=SHARDS).exit_code == 0


def test_a_report_is_json(store: Store) -> None:
    values = json.loads(json.dumps(check(store).to_json()))
    assert values["missing_shards"] == ["2.tar"]
    assert values["damaged"] is False
    assert values["counts"] == {"ok": 8, "empty": 2, "quarantined": 2, "persons": 10}
