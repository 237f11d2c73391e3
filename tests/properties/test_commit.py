"""Tilings, documents and create races over random cases (I1, I5, I6)."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapiens_batch.errors import ProtocolError
from sapiens_batch.protocol.commit import tiling, total_counts
from sapiens_batch.protocol.documents import Counts
from sapiens_batch.protocol.receipt import Receipt, RowSection
from sapiens_batch.records import Problem
from sapiens_batch.storage.memory import MemoryStore
from tests.protocol.documents import SHARD_ID, receipt

FEW = settings(max_examples=60, deadline=None)


def tiles(num_samples: int, chunk_samples: int) -> list[Receipt]:
    """The receipts of a shard as its reader cuts it."""
    starts = range(0, max(num_samples, 1), chunk_samples)
    return [
        receipt(
            start // chunk_samples,
            start,
            min(start + chunk_samples, num_samples),
            last=start + chunk_samples >= num_samples,
        )
        for start in starts
    ]


@FEW
@given(st.integers(0, 200), st.integers(1, 40), st.randoms(use_true_random=False))
def test_all_receipts_in_any_order_tile_their_shard(
    num: int, chunk_samples: int, random: Random
) -> None:
    receipts = tiles(num, chunk_samples)
    random.shuffle(receipts)
    assert tiling(receipts, chunk_samples) == num
    assert total_counts(receipts).samples == num


@FEW
@given(st.data(), st.integers(1, 200), st.integers(1, 40))
def test_receipts_with_a_hole_never_tile(data: st.DataObject, num: int, chunk_samples: int) -> None:
    receipts = tiles(num, chunk_samples)
    dropped = data.draw(st.integers(0, len(receipts) - 1))
    assert tiling(receipts[:dropped] + receipts[dropped + 1 :], chunk_samples) is None


@FEW
@given(st.data(), st.integers(1, 200), st.integers(1, 40), st.integers(-5, 5))
def test_a_moved_receipt_is_always_noticed(
    data: st.DataObject, num: int, chunk_samples: int, shift: int
) -> None:
    receipts = tiles(num, chunk_samples)
    moved = data.draw(st.integers(0, len(receipts) - 1))
    one = receipts[moved]
    if shift == 0 or one.start + shift < 0:
        return
    receipts[moved] = receipt(one.chunk, one.start + shift, one.stop + shift, last=one.last)
    with pytest.raises(ProtocolError, match="expected to start at"):
        tiling(receipts, chunk_samples)


@FEW
@given(
    ok=st.integers(0, 2**40),
    empty=st.integers(0, 50),
    reasons=st.dictionaries(st.text(max_size=20), st.integers(1, 9), max_size=4),
    message=st.text(),
    data=st.binary(max_size=50),
    seconds=st.floats(allow_nan=False),
)
def test_receipts_survive_packing(
    ok: int, empty: int, reasons: dict[str, int], message: str, data: bytes, seconds: float
) -> None:
    quarantined = sum(reasons.values())
    written = Receipt(
        shard_id=SHARD_ID,
        chunk=0,
        start=0,
        stop=ok + empty + quarantined,
        last=True,
        write_id="0" * 32,
        counts=Counts(ok=ok, empty=empty, quarantined=quarantined),
        reasons=reasons,
        problems=(Problem("source.x", message),),
        rows={"images": RowSection.describe(data, rows=1)},
        timings_s={"label": seconds},
        created="now",
    )
    packed = written.pack({"images": data})
    assert Receipt.unpack(packed, "k") == (written, {"images": data})


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=4)), min_size=1, max_size=24))
def test_racing_creates_leave_one_winner_per_key_with_its_own_bytes(
    writes: list[tuple[int, bytes]],
) -> None:
    store = MemoryStore(uuid.uuid4().hex)
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda write: store.create(f"k/{write[0]}", write[1]), writes))
    for key in {key for key, _ in writes}:
        winners = [
            data
            for (other, data), won_it in zip(writes, won, strict=True)
            if won_it and other == key
        ]
        assert [store.read(f"k/{key}")] == winners
