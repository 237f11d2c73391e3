"""Which chunk a piece of work is about; the same through all stages."""

from __future__ import annotations

from dataclasses import dataclass

from sapiens_batch.records import Problem


@dataclass(frozen=True, slots=True)
class ChunkHeader:
    """Which samples a record is about; the same through all stages.

    Attributes:
        shard_id: The shard's id.
        index: Number of the chunk in its shard.
        start: Index of the first sample in the shard.
        stop: Index after the last sample.
        last: Whether the chunk ends its shard.
        problems: Damage of the shard that belongs to no sample.
        generation: Which generation of the shard is being made.
        ordered: Indices of the chunk's samples to label; None for all. The others are taken over
            from the commit before.
        attempt: The mark of the attempt in the ledger, empty before there is one.
        isolated: Whether the samples were labeled one by one.
    """

    shard_id: str
    index: int
    start: int
    stop: int
    last: bool
    problems: tuple[Problem, ...] = ()
    generation: int = 0
    ordered: frozenset[int] | None = None
    attempt: str = ""
    isolated: bool = False
