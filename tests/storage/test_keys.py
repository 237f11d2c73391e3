"""Paths of a job directory and their inverse."""

from __future__ import annotations

import pytest

from sapiens_batch.protocol import keys
from sapiens_batch.protocol.keys import ObjectName

SHARD = "ab" + "0" * 30
WRITE = "f" * 32


def test_paths_are_those_of_the_format() -> None:
    assert keys.plan_table(0) == "plan/0000.parquet"
    assert keys.plan_document(12) == "plan/0012.json"
    assert keys.receipt(SHARD, 7) == f"receipts/{SHARD}/000007.json"
    assert keys.attempt(SHARD, 7, WRITE) == f"attempts/{SHARD}/000007/{WRITE}"
    assert keys.attempt(SHARD, None, WRITE) == f"attempts/{SHARD}/read/{WRITE}"
    assert keys.part("images", SHARD, 7, WRITE) == f"parts/images/{SHARD}/000007-{WRITE}.parquet"
    assert keys.table("persons", SHARD, WRITE) == f"tables/persons/ab/{SHARD}-{WRITE}.parquet"
    assert keys.array_document("seg", SHARD) == f"arrays/seg/ab/{SHARD}.zarr/zarr.json"
    assert keys.array_chunk("seg", SHARD, 3, 2) == f"arrays/seg/ab/{SHARD}.zarr/c/3/0/0"
    assert keys.array_chunk("normal", SHARD, 3, 3) == f"arrays/normal/ab/{SHARD}.zarr/c/3/0/0/0"
    assert keys.commit(SHARD) == f"commits/ab/{SHARD}.json"


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (keys.receipt(SHARD, 7), ObjectName("receipt", SHARD, 7)),
        (keys.commit(SHARD), ObjectName("commit", SHARD)),
        (keys.attempt(SHARD, 7, WRITE), ObjectName("attempt", SHARD, 7, write_id=WRITE)),
        (keys.attempt(SHARD, None, WRITE), ObjectName("attempt", SHARD, write_id=WRITE)),
        (keys.part("images", SHARD, 7, WRITE), ObjectName("part", SHARD, 7, "images", WRITE)),
        (keys.table("images", SHARD, WRITE), ObjectName("table", SHARD, None, "images", WRITE)),
        (keys.array_chunk("normal", SHARD, 1234567, 3),
         ObjectName("array_chunk", SHARD, 1234567, "normal")),
        (keys.array_document("seg", SHARD), ObjectName("array_document", SHARD, None, "seg")),
    ],
)  # fmt: skip
def test_a_listed_key_says_what_its_object_is(key: str, name: ObjectName) -> None:
    assert keys.parse(key) == name


@pytest.mark.parametrize(
    "key",
    ["job.json", "receipts/short/000001.json", f"receipts/{SHARD}/000001.json.tmp", "notes.txt",
     f"commits/ab/{SHARD}.json/x", f"receipts/{SHARD.upper()}/000001.json"],
)  # fmt: skip
def test_a_foreign_key_says_nothing(key: str) -> None:
    assert keys.parse(key) is None
    assert keys.parse_receipt(key) is None
    assert keys.parse_commit(key) is None


def test_receipts_and_commits_and_plans_are_parsed() -> None:
    assert keys.parse_receipt(f"receipts/{SHARD}/000012.json") == (SHARD, 0, 12)
    assert keys.parse_commit(f"commits/ab/{SHARD}.json") == (SHARD, 0)
    assert keys.parse_plan_document("plan/0003.json") == 3
    assert keys.parse_plan_document("plan/0003.parquet") is None


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (keys.receipt(SHARD, 7, 2), "receipt"),
        (keys.commit(SHARD, 2), "commit"),
        (keys.relabel_order(SHARD, 2), "relabel"),
        (keys.attempt(SHARD, 7, WRITE, 2), "attempt"),
        (keys.attempt(SHARD, None, WRITE, 2), "attempt"),
        (keys.part("images", SHARD, 7, WRITE, 2), "part"),
        (keys.table("images", SHARD, WRITE, 2), "table"),
        (keys.array_chunk("normal", SHARD, 3, 3, 2), "array_chunk"),
        (keys.array_document("seg", SHARD, 2), "array_document"),
    ],
)
def test_objects_of_a_later_generation_carry_its_number(key: str, kind: str) -> None:
    assert f"{SHARD}.0002" in key
    name = keys.parse(key)
    assert name is not None
    assert (name.kind, name.shard_id, name.generation) == (kind, SHARD, 2)


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
