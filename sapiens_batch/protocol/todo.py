"""What is left to do of one shard, frozen, so that every attempt at it does the same.

Pure values: what is to do is found by the manifest, followed by the driver, and done by the stages.
"""

from __future__ import annotations

from dataclasses import dataclass

from sapiens_batch.protocol.orders import ordered_chunks
from sapiens_batch.records import Shard

WHOLE_SHARD = (0, 1)


@dataclass(frozen=True, slots=True)
class ShardTodo:
    """A shard with samples to label: one without a commit, or one with an open relabel order.

    Attributes:
        shard: The shard.
        done_chunks: Chunks to leave alone: they have a receipt of this generation, or hold no
            ordered sample.
        generation: Which generation of the shard is to be made, 0 for its first labels.
        samples: Indices of the ordered samples, or None for all. The rows of other samples in the
            same chunks are taken over from the newest commit.
        span: (j, k): the part of the shard that is meant, its chunks with `index % k == j`.
        suspects: Chunks that used up their attempts: they are handed on undecoded, so that their
            samples can be labeled one by one.
    """

    shard: Shard
    done_chunks: frozenset[int] = frozenset()
    generation: int = 0
    samples: frozenset[int] | None = None
    span: tuple[int, int] = WHOLE_SHARD
    suspects: frozenset[int] = frozenset()

    def skips(self, chunk: int) -> bool:
        """Whether a chunk is read past: it is done, or belongs to another span."""
        number, spans = self.span
        return chunk % spans != number or chunk in self.done_chunks

    def ordered_chunks(self, chunk_samples: int) -> frozenset[int] | None:
        """The chunks that hold ordered samples, or None where all samples are to be labeled."""
        return None if self.samples is None else ordered_chunks(self.samples, chunk_samples)
