"""Receipts: what they hold, and that nonsense is refused (I1)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from sapiens_batch.errors import ProtocolError
from sapiens_batch.protocol.documents import Counts, StoredObject
from sapiens_batch.protocol.receipt import Receipt
from sapiens_batch.records import Problem
from tests.protocol.documents import SHARD_ID, receipt
from tests.sealed import sealed

FULL = Receipt(
    shard_id=SHARD_ID,
    chunk=1,
    start=32,
    stop=36,
    last=True,
    write_id="a" * 32,
    counts=Counts(ok=2, empty=1, quarantined=1, persons=5),
    reasons={"decode.truncated": 1},
    problems=(Problem("source.truncated", "the tar ends early"),),
    parts={"images": StoredObject.describe("parts/images/x", b"rows", rows=4)},
    arrays={"seg": StoredObject.describe("arrays/seg/x", b"pixels", rows=3)},
    timings_s={"label": 0.25},
    created="2026-01-01T00:00:00+00:00",
)


def test_a_receipt_reads_back_as_written() -> None:
    assert Receipt.from_bytes(FULL.to_bytes(), "k") == FULL


def test_equal_receipts_have_equal_bytes() -> None:
    assert Receipt.from_bytes(FULL.to_bytes(), "k").to_bytes() == FULL.to_bytes()


def test_the_stored_form_is_plain_json() -> None:
    document = json.loads(FULL.to_bytes())
    assert document["format_version"] == 1
    assert document["counts"] == {"ok": 2, "empty": 1, "quarantined": 1, "persons": 5}
    assert document["problems"] == [{"reason": "source.truncated", "message": "the tar ends early"}]
    assert sorted(document["parts"]["images"]) == [
        "block_crc32c",
        "key",
        "rows",
        "sha256",
        "size_bytes",
    ]


def test_a_stored_object_is_described_by_its_bytes() -> None:
    described = StoredObject.describe("k", memoryview(b"abc"), rows=1)
    # the SHA-256 test vector of FIPS 180
    assert described.sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert described.size_bytes == 3


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"format_version": 1}', FULL.to_bytes()[:-20]],
)
def test_nonsense_is_reported_with_its_key(data: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"receipts/x\.json: not a valid Receipt"):
        Receipt.from_bytes(data, "receipts/x.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 2}, "format_version"),
        ({"surprise": 1}, "surprise"),
        ({"shard_id": "../../etc"}, "shard_id"),
        ({"stop": 35}, "4 samples counted in range"),
        ({"start": 37}, "reversed"),
        ({"reasons": {}}, "reasons count 0 of 1"),
    ],
)
def test_a_contradiction_within_a_receipt_is_refused(change: dict[str, Any], message: str) -> None:
    document = {**json.loads(FULL.to_bytes()), **change}
    with pytest.raises(ProtocolError, match=message):
        Receipt.from_bytes(sealed(document), "k")


def test_a_receipt_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        receipt(0, 0, 4).stop = 5


def test_counts_add_up() -> None:
    total = Counts(ok=1, persons=2) + Counts(ok=2, empty=3, quarantined=4, persons=5)
    assert total == Counts(ok=3, empty=3, quarantined=4, persons=7)
    assert total.samples == 10
