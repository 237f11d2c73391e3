"""Receipts: what they hold, and that nonsense is refused (I1)."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from pydantic import ValidationError

from sapiens_batch.errors import DamagedReceiptError, ProtocolError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.documents import Counts, StoredObject
from sapiens_batch.protocol.receipt import Receipt, RowSection, read_receipt
from sapiens_batch.records import Problem
from sapiens_batch.storage.memory import MemoryStore
from tests.protocol.documents import SHARD_ID, receipt
from tests.sealed import sealed

SECTIONS = {"images": b"rows of images", "persons": b"and of persons"}
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
    rows={table: RowSection.describe(data, rows=4) for table, data in SECTIONS.items()},
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
    assert sorted(document["rows"]["images"]) == ["rows", "sha256", "size_bytes"]


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


def test_rows_lie_behind_the_document_in_one_object() -> None:
    data = FULL.pack(SECTIONS)
    assert data.endswith(b"rows of imagesand of persons")
    assert data.index(b"\n") == len(data) - 28 - 1
    assert Receipt.unpack(data, "k") == (FULL, SECTIONS)


def test_a_flipped_bit_anywhere_in_a_receipt_is_noticed() -> None:
    whole = FULL.pack(SECTIONS)
    for position in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(ProtocolError, match="damaged"):
            Receipt.unpack(bytes(damaged), "k")


def test_a_cut_or_longer_receipt_is_noticed() -> None:
    whole = FULL.pack(SECTIONS)
    for data in (b"", b"\n", whole[:-1], whole + b"x", whole[:-28], whole[:-29]):
        with pytest.raises(ProtocolError):
            Receipt.unpack(data, "k")


def test_a_receipt_is_read_by_its_name_and_belongs_there() -> None:
    store = MemoryStore(uuid.uuid4().hex)
    store.create(keys.receipt(SHARD_ID, 1), FULL.pack(SECTIONS))
    assert read_receipt(store, SHARD_ID, 1) == (FULL, SECTIONS)
    store.create(keys.receipt(SHARD_ID, 2), FULL.pack(SECTIONS))
    for chunk, message in ((2, "names chunk 1"), (3, "the receipt is lost")):
        with pytest.raises(DamagedReceiptError, match=message):
            read_receipt(store, SHARD_ID, chunk)


def test_counts_add_up() -> None:
    total = Counts(ok=1, persons=2) + Counts(ok=2, empty=3, quarantined=4, persons=5)
    assert total == Counts(ok=3, empty=3, quarantined=4, persons=7)
    assert total.samples == 10
