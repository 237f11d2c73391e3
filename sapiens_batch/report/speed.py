"""How fast a job ran, from what its receipts recorded.

Receipts may be gone (`gc` removes those of committed shards), and a job may have been stopped and
resumed; so the numbers say what they are of. Stage times are sums over processes that ran at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sapiens_batch.protocol.manifest import Manifest

MAX_SHARDS: Final = 256


@dataclass(frozen=True, slots=True)
class Speed:
    """Throughput of the shards that were looked at.

    Attributes:
        num_shards: Shards whose receipts were read.
        num_samples: Samples of their chunks.
        elapsed_s: Seconds between the first and the last of these chunks, pauses included.
        samples_per_s: Samples in that time; None where there is no time to divide by.
        stage_s_per_sample: Process seconds per sample, by stage.
    """

    num_shards: int
    num_samples: int
    elapsed_s: float
    samples_per_s: float | None
    stage_s_per_sample: dict[str, float]


def speed(manifest: Manifest, shards: Sequence[tuple[str, int]]) -> Speed:
    """Read the receipts of up to `MAX_SHARDS` (shard_id, generation), evenly spread."""
    stages: Counter[str] = Counter()
    times: list[datetime] = []
    num_samples = num_shards = 0
    for shard_id, generation in shards[:: -(-len(shards) // MAX_SHARDS) or 1]:
        receipts = manifest.receipts(shard_id, generation)
        num_shards += bool(receipts)
        for receipt in receipts:
            times.append(datetime.fromisoformat(receipt.created))
            num_samples += receipt.counts.samples
            stages.update(receipt.timings_s)
    elapsed = (max(times) - min(times)).total_seconds() if times else 0.0
    return Speed(
        num_shards=num_shards,
        num_samples=num_samples,
        elapsed_s=elapsed,
        samples_per_s=num_samples / elapsed if elapsed > 0 else None,
        stage_s_per_sample={
            stage: seconds / num_samples for stage, seconds in stages.items() if num_samples
        },
    )
