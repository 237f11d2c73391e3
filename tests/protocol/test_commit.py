"""Tilings (I5) and counts (I1); random tilings are in `properties/test_commit.py`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sapiens_batch.errors import ProtocolError
from sapiens_batch.protocol.commit import (
    ChunkRange,
    Commit,
    CommittedArray,
    build_commit,
    check_counts,
    tiling,
    total_reasons,
)
from sapiens_batch.protocol.documents import Counts, StoredObject
from sapiens_batch.protocol.receipt import Receipt
from sapiens_batch.records import Problem
from tests.protocol.documents import DIGEST, receipt, shard
from tests.sealed import sealed

WHOLE = [receipt(0, 0, 4), receipt(1, 4, 8), receipt(2, 8, 9, last=True)]


def test_complete_receipts_tell_the_number_of_samples() -> None:
    assert tiling(WHOLE, 4) == 9
    assert tiling(reversed(WHOLE), 4) == 9


def test_a_shard_without_samples_is_one_empty_chunk() -> None:
    assert tiling([receipt(0, 0, 0, last=True)], 4) == 0


def test_a_last_chunk_may_be_full_or_empty() -> None:
    assert tiling([receipt(0, 0, 4, last=True)], 4) == 4
    assert tiling([receipt(0, 0, 4), receipt(1, 4, 4, last=True)], 4) == 4


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_missing_chunks_mean_not_yet(missing: int) -> None:
    assert tiling([one for one in WHOLE if one.chunk != missing], 4) is None


def test_no_receipts_mean_not_yet() -> None:
    assert tiling([], 4) is None


@pytest.mark.parametrize(
    ("receipts", "message"),
    [
        ([receipt(0, 0, 4), receipt(0, 0, 4)], "chunk 0 has two receipts"),
        ([receipt(0, 0, 4), receipt(1, 3, 7)], r"chunk 1 covers \[3, 7\), expected to start at 4"),
        ([receipt(0, 0, 5)], "up to 4 samples"),
        ([receipt(0, 0, 3)], "chunk 0 has 3 samples but does not end the shard"),
        ([receipt(0, 0, 2, last=True), receipt(1, 4, 8)], "beyond chunk 0, which ends the shard"),
        ([receipt(0, 0, 4, last=True), receipt(1, 4, 5, last=True)], "beyond chunk 0"),
        ([receipt(0, 0, 4), receipt(1, 4, 8, shard_id="c" * 32)], "several shards"),
    ],
)
def test_contradicting_receipts_are_refused(receipts: list[Any], message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        tiling(receipts, 4)


def test_every_sample_needs_a_status_and_a_row() -> None:
    check_counts(6, Counts(ok=3, empty=2, quarantined=1), 6)
    for num_samples, rows in ((7, 6), (6, 5), (5, 6), (7, 7)):
        with pytest.raises(ProtocolError, match=r"3 ok \+ 2 empty \+ 1 quarantined = 6"):
            check_counts(num_samples, Counts(ok=3, empty=2, quarantined=1), rows)


def build(**changes: Any) -> Commit:
    planned = shard()
    receipts = [
        receipt(one.chunk, one.start, one.stop, last=one.last, shard_id=planned.shard_id)
        for one in WHOLE
    ]
    arguments: dict[str, Any] = {
        "shard": planned,
        "receipts": receipts[::-1],
        "tables": {
            "images": StoredObject.describe("t", b"x", rows=9),
            "persons": StoredObject.describe("p", b"", rows=0),
        },
        "arrays": {
            "seg": CommittedArray(
                root="arrays/seg/x.zarr",
                shape=(9, 4, 4),
                shard_rows=4,
                metadata=StoredObject.describe("arrays/seg/x.zarr/zarr.json", b"{}"),
            )
        },
        "spec_digest": DIGEST,
        "chunk_samples": 4,
    }
    return build_commit(**(arguments | changes))


def test_a_commit_records_its_chunks_in_order_and_reads_back() -> None:
    commit = build()
    assert [(one.start, one.stop) for one in commit.chunks] == [(0, 4), (4, 8), (8, 9)]
    assert commit.counts == Counts(ok=9)
    assert commit.num_samples == 9
    assert Commit.from_bytes(commit.to_bytes(), "k") == commit


def test_two_commits_of_one_shard_differ_in_their_bytes() -> None:
    assert build().to_bytes() != build().to_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"receipts": [receipt(0, 0, 4)]}, "1 receipts do not reach its end"),
        ({"receipts": [receipt(0, 0, 1, last=True)]}, "put together with shard"),
        ({"tables": {"images": StoredObject.describe("t", b"x", rows=8)}}, "8 rows in `images`"),
        (
            {
                "tables": {
                    "images": StoredObject.describe("t", b"x", rows=9),
                    "persons": StoredObject.describe("p", b"x", rows=2),
                }
            },
            "receipts count 0 persons, `persons` has 2 rows",
        ),
    ],
)
def test_a_commit_that_does_not_add_up_is_not_made(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        build(**changes)


def test_a_stored_commit_with_a_gap_is_refused() -> None:
    document = json.loads(build().to_bytes())
    document["chunks"][1][0] = 5
    with pytest.raises(ProtocolError, match=r"chunk \[5, 8\) does not start at 4"):
        Commit.from_bytes(sealed(document), "commits/x.json")


def test_reasons_are_summed_and_sorted() -> None:
    one = receipt(0, 0, 4).model_copy(update={"reasons": {"b": 1, "a": 2}})
    other = receipt(1, 4, 8).model_copy(update={"reasons": {"b": 3}})
    assert list(total_reasons([one, other]).items()) == [("a", 2), ("b", 4)]


BASE_TILES = (
    ChunkRange(0, 4, "a" * 32),
    ChunkRange(4, 8, "b" * 32),
    ChunkRange(8, 9, "c" * 32),
)


def base_commit() -> Commit:
    return build().model_copy(
        update={"chunks": BASE_TILES, "problems": (Problem("source.x", "m"),)}
    )


def later(*chunks: int) -> list[Receipt]:
    mine = {"generation": 1, "shard_id": shard().shard_id}
    return [one.model_copy(update=mine) for one in WHOLE if one.chunk in chunks]


def test_a_later_generation_takes_the_other_chunks_over() -> None:
    made = build(receipts=later(1), generation=1, counts=Counts(ok=9), base=base_commit())
    assert made.generation == 1
    assert [one.write_id for one in made.chunks] == ["a" * 32, f"{1:032x}", "c" * 32]
    assert made.num_samples == 9
    assert made.problems == (Problem("source.x", "m"),)


def test_a_later_generation_without_receipts_is_the_base_again() -> None:
    made = build(receipts=[], generation=1, counts=Counts(ok=9), base=base_commit())
    assert made.chunks == BASE_TILES


def test_a_chunk_that_the_base_does_not_have_means_another_input() -> None:
    moved = [later(1)[0].model_copy(update={"stop": 7})]
    with pytest.raises(ProtocolError, match=r"chunk 1 covers \[4, 7\), which generation 0"):
        build(receipts=moved, generation=1, counts=Counts(ok=9), base=base_commit())
    beyond = [receipt(3, 12, 13).model_copy(update={"generation": 1})]
    with pytest.raises(ProtocolError, match="the input changed"):
        build(receipts=beyond, generation=1, counts=Counts(ok=9), base=base_commit())


def test_receipts_of_another_generation_are_refused() -> None:
    with pytest.raises(ProtocolError, match="generation 0 was put together with 1"):
        build(generation=1)
