"""Documents carry their own checksum, stored objects those of their blocks (I8)."""

from __future__ import annotations

import json
import random

import google_crc32c
import pytest

from sapiens_batch.errors import ProtocolError
from sapiens_batch.protocol.documents import StoredObject
from sapiens_batch.protocol.orders import RelabelOrder
from sapiens_batch.protocol.receipt import Receipt
from sapiens_batch.storage.memory import MemoryStore
from tests.protocol.documents import receipt

RECEIPT = receipt(0, 0, 4)


def test_the_last_member_is_the_checksum_of_what_stands_before_it() -> None:
    for data, separator in (
        (RECEIPT.to_bytes(), b',\n "crc32c"'),
        (RECEIPT.to_line(), b',"crc32c"'),
    ):
        content, found, _ = data.partition(separator)
        assert found
        assert list(json.loads(data))[-1] == "crc32c"
        assert json.loads(data)["crc32c"] == f"{google_crc32c.value(content):08x}"


def test_the_checksum_is_that_of_the_reference() -> None:
    # the test vector of RFC 3720, appendix B.4: 32 bytes of zeros
    assert StoredObject.describe("k", bytes(32), blocks=True).block_crc32c == "8a9136aa"


def test_both_forms_read_back_as_written() -> None:
    assert Receipt.from_bytes(RECEIPT.to_bytes(), "k") == RECEIPT
    assert Receipt.from_bytes(RECEIPT.to_line(), "k") == RECEIPT
    assert b"\n" not in RECEIPT.to_line()


@pytest.mark.parametrize("form", ["to_bytes", "to_line"])
def test_no_changed_bit_of_a_document_is_believed(form: str) -> None:
    data = getattr(RECEIPT, form)()
    for position in range(len(data) * 8):
        changed = bytearray(data)
        changed[position // 8] ^= 1 << position % 8
        with pytest.raises(ProtocolError, match=r"^receipts/x: not a valid Receipt"):
            Receipt.from_bytes(bytes(changed), "receipts/x")


def test_a_document_of_another_kind_is_refused_by_its_members() -> None:
    with pytest.raises(ProtocolError, match="not a valid RelabelOrder"):
        RelabelOrder.from_bytes(RECEIPT.to_bytes(), "relabel/x")


def test_blocks_have_checksums_where_asked_for() -> None:
    data = random.Random(0).randbytes(600_000)
    crcs = [f"{google_crc32c.value(data[at : at + 262_144]):08x}" for at in (0, 262_144, 524_288)]
    assert StoredObject.describe("k", data, blocks=True).block_crc32c == "".join(crcs)
    assert StoredObject.describe("k", data).block_crc32c == ""
    assert StoredObject.describe("k", b"", blocks=True).block_crc32c == ""


def test_a_whole_object_is_compared_with_its_record() -> None:
    store = MemoryStore("documents-whole")
    stored = StoredObject.describe("tables/x", b"rows")
    store.create("tables/x", b"rows")
    assert stored.read(store) == b"rows"
    for other, what in ((b"rowz", "digest of 4 bytes"), (b"row", "3 bytes of 4")):
        store.delete("tables/x")
        store.create("tables/x", other)
        with pytest.raises(ProtocolError, match=rf"^tables/x: .*{what}.*verify --repair"):
            stored.read(store)
