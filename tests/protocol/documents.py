"""Small valid documents for tests of the job package and of what stands on it."""

from __future__ import annotations

from sapiens_batch.protocol.documents import Counts
from sapiens_batch.protocol.receipt import Receipt
from sapiens_batch.records import Shard

SHARD_ID = "ab" + "0" * 30
DIGEST = "5" * 64


def shard(number: int = 0, version: str = "v1", members: tuple[str, ...] = ()) -> Shard:
    shard_id = f"{number:030x}" + ("01" if version == "v1" else "02")
    return Shard(shard_id, f"{number:05d}.tar", f"/in/{number:05d}.tar", version, 100, members)


def receipt(
    chunk: int, start: int, stop: int, *, last: bool = False, shard_id: str = SHARD_ID
) -> Receipt:
    return Receipt(
        shard_id=shard_id,
        chunk=chunk,
        start=start,
        stop=stop,
        last=last,
        write_id=f"{chunk:032x}",
        counts=Counts(ok=stop - start),
        created="2026-01-01T00:00:00+00:00",
    )
