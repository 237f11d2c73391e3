"""What the rows of a shard's tables count."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from sapiens_batch.protocol.documents import Counts
from sapiens_batch.records import Status


def status_counts(images: pa.Table, num_persons: int) -> tuple[Counts, dict[str, int]]:
    """What became of the samples of a table, and the quarantined ones by reason, sorted.

    Args:
        images: Rows of `images`.
        num_persons: Rows of `persons`.
    """
    rows = images.select(["status", "reason"]).to_pylist()
    statuses = Counter(row["status"] for row in rows)
    reasons = Counter(row["reason"] for row in rows if row["status"] == Status.QUARANTINED)
    counts = Counts(
        ok=statuses[Status.OK],
        empty=statuses[Status.EMPTY],
        quarantined=statuses[Status.QUARANTINED],
        persons=num_persons,
    )
    return counts, dict(sorted(reasons.items()))
