"""Paths of a job directory and their inverse."""

from __future__ import annotations

import pytest

from sapiens_batch.protocol import keys
from sapiens_batch.protocol.keys import ObjectName

WRITE_ID = "9" * 32

SHARD = "ab" + "0" * 30
WRITE = "f" * 32
ROOT = keys.array("normal", SHARD)
OWN_ROOT = keys.array("seg", SHARD, write_id=WRITE)


def test_paths_are_those_of_the_format() -> None:
    assert keys.plan_table(0, WRITE_ID) == f"plan/0000-{WRITE_ID}.parquet"
    assert keys.plan_document(12) == "plan/0012.json"
    assert keys.receipt(SHARD, 7) == f"receipts/{SHARD}/000007.receipt"
    assert keys.table("persons", SHARD, WRITE) == f"tables/persons/ab/{SHARD}-{WRITE}.parquet"
    assert keys.array("seg", SHARD) == f"arrays/seg/ab/{SHARD}.zarr"
    assert keys.array("seg", SHARD, 2, WRITE) == f"arrays/seg/ab/{SHARD}.0002-{WRITE}.zarr"
    assert keys.array_document("a/b.zarr") == "a/b.zarr/zarr.json"
    assert keys.array_chunk("a/b.zarr", 3, 2) == "a/b.zarr/c/3/0/0"
    assert keys.array_chunk("a/b.zarr", 3, 3) == "a/b.zarr/c/3/0/0/0"
    assert keys.commit(SHARD) == f"commits/ab/{SHARD}.json"


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (keys.receipt(SHARD, 7), ObjectName("receipt", SHARD, 7)),
        (keys.commit(SHARD), ObjectName("commit", SHARD)),
        (keys.table("images", SHARD, WRITE), ObjectName("table", SHARD, None, "images", WRITE)),
        (keys.array_chunk(ROOT, 1234567, 3), ObjectName("array_chunk", SHARD, 1234567, "normal")),
        (keys.array_chunk(OWN_ROOT, 3, 2), ObjectName("array_chunk", SHARD, 3, "seg", WRITE)),
        (keys.array_document(ROOT), ObjectName("array_document", SHARD, None, "normal")),
        (keys.array_document(OWN_ROOT), ObjectName("array_document", SHARD, None, "seg", WRITE)),
    ],
)  # fmt: skip
def test_a_listed_key_says_what_its_object_is(key: str, name: ObjectName) -> None:
    assert keys.parse(key) == name


@pytest.mark.parametrize(
    "key",
    ["job.json", "receipts/short/000001.receipt", f"receipts/{SHARD}/000001.receipt.tmp",
     "notes.txt", f"commits/ab/{SHARD}.json/x", f"receipts/{SHARD.upper()}/000001.receipt"],
)  # fmt: skip
def test_a_foreign_key_says_nothing(key: str) -> None:
    assert keys.parse(key) is None
    assert keys.parse_receipt(key) is None
    assert keys.parse_commit(key) is None


def test_receipts_and_commits_and_plans_are_parsed() -> None:
    assert keys.parse_receipt(f"receipts/{SHARD}/000012.receipt") == (SHARD, 0, 12)
    assert keys.parse_commit(f"commits/ab/{SHARD}.json") == (SHARD, 0)
    assert keys.parse_plan_document("plan/0003.json") == 3
    assert keys.parse_plan_document("plan/0003.parquet") is None


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (keys.receipt(SHARD, 7, 2), "receipt"),
        (keys.commit(SHARD, 2), "commit"),
        (keys.relabel_order(SHARD, 2), "relabel"),
        (keys.table("images", SHARD, WRITE, 2), "table"),
        (keys.array_chunk(keys.array("seg", SHARD, 2), 3, 3), "array_chunk"),
        (keys.array_document(keys.array("seg", SHARD, 2, WRITE)), "array_document"),
    ],
)
def test_objects_of_a_later_generation_carry_its_number(key: str, kind: str) -> None:
    assert f"{SHARD}.0002" in key
    name = keys.parse(key)
    assert name is not None
    assert (name.kind, name.shard_id, name.generation) == (kind, SHARD, 2)


def test_an_array_object_names_its_root() -> None:
    for root in (ROOT, OWN_ROOT):
        assert keys.array_root(keys.array_chunk(root, 7, 2)) == root
        assert keys.array_root(keys.array_document(root)) == root


def test_generation_zero_has_one_name_only() -> None:
    assert keys.stem(SHARD, 0) == SHARD
    assert keys.parse_commit(f"commits/ab/{SHARD}.0000.json") is None
    assert keys.parse_relabel_order(f"relabel/ab/{SHARD}.json") is None
    assert keys.parse_relabel_order(keys.relabel_order(SHARD, 12)) == (SHARD, 12)
    assert keys.parse_commit(keys.commit(SHARD, 12345)) == (SHARD, 12345)


def test_snapshots_are_named_by_number_and_digest() -> None:
    key = keys.snapshot(7, "0" * 64)
    assert key == f"snapshots/00000007-{'0' * 64}.parquet"
    assert keys.parse_snapshot(key) == (7, "0" * 64)
    assert keys.parse_snapshot("snapshots/notes.txt") is None
