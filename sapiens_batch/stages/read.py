"""What is read of a shard: its chunks that are not done, with their samples that are to be labeled.

Deterministic: what to skip is frozen into the `ShardTodo`, so every attempt at a shard gives the
same records wherever it runs. Where that is, is left to `source`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.records import Chunk
from sapiens_batch.sources import make_source
from sapiens_batch.sources.chunks import iter_chunks
from sapiens_batch.spec.job import SourceSpec
from sapiens_batch.stages.flow import ReadChunk


@dataclass(frozen=True, slots=True)
class ShardReader:
    """Reads shards of one job. Picklable.

    Attributes:
        spec: How to read a shard.
        chunk_samples: Samples per chunk.
        stall_timeout_s: Seconds that the next chunk of a shard may take where it is read in a
            process of its own; None for no limit.
    """

    spec: SourceSpec
    chunk_samples: int
    stall_timeout_s: float | None = None

    def read(self, todo: ShardTodo) -> Iterator[ReadChunk]:
        """The chunks of a shard that are not done, in order.

        Raises:
            InputError, OSError: As for `sources.chunks.iter_chunks`.
        """
        source = make_source(self.spec)
        for chunk in iter_chunks(source, todo.shard, self.chunk_samples, todo.skips):
            yield _ordered(chunk, todo)


def _ordered(chunk: Chunk, todo: ShardTodo) -> ReadChunk:
    """The samples of a chunk that are to be labeled."""
    header = ChunkHeader(
        chunk.shard_id,
        chunk.index,
        chunk.start,
        chunk.stop,
        chunk.last,
        chunk.problems,
        generation=todo.generation,
    )
    if todo.samples is None:
        return ReadChunk(header, chunk)
    ordered = todo.samples.intersection(range(chunk.start, chunk.stop))
    samples = tuple(sample for sample in chunk.samples if sample.index in ordered)
    return ReadChunk(replace(header, ordered=ordered), replace(chunk, samples=samples))
