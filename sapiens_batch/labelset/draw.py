"""Random samples of a job: the same seed draws the same ones, however the job was run.

Samples are ranked by a digest of seed and place, so that memory holds what is drawn and one shard's
indices, and a sample keeps its rank when the job grows.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterator

import pyarrow.dataset as ds

from sapiens_batch.labelset.labels import LabelSet
from sapiens_batch.records import Level

Place = tuple[str, int]
"""A sample: its shard's id and its index in the shard."""


def iter_places(labels: LabelSet, wanted: ds.Expression | None = None) -> Iterator[Place]:
    """Places of samples in stored order."""
    for shard_id in labels.shard_ids(wanted):
        rows = labels.shard_rows(shard_id, Level.IMAGE, wanted, ["index"])
        for index in rows["index"].to_numpy():
            yield shard_id, int(index)


def random_places(
    labels: LabelSet, count: int, seed: int, wanted: ds.Expression | None = None
) -> list[Place]:
    """Up to `count` places of samples, in random order."""
    ranked = ((_rank(seed, place), place) for place in iter_places(labels, wanted))
    return [place for _, place in heapq.nsmallest(count, ranked)]


def _rank(seed: int, place: Place) -> bytes:
    text = f"{seed} {place[0]} {place[1]}"
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
