"""Cut the samples of one shard into chunks, the rows that flow through the pipeline.

Chunk boundaries depend on the shard and on `chunk_samples` only, so every attempt at a shard gives
the same chunks whatever is skipped. Which chunks to skip is decided by the caller and frozen into
the read task; nothing here looks up the state of a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sapiens_batch.records import Chunk, Problem, Sample, Shard
from sapiens_batch.sources.base import Source


def iter_chunks(
    source: Source,
    shard: Shard,
    chunk_samples: int,
    skips: Callable[[int], bool] = lambda chunk: False,
) -> Iterator[Chunk]:
    """Stream a shard as chunks, at most one chunk and one sample in memory.

    Args:
        source: Reads the shard.
        shard: The shard as it was planned.
        chunk_samples: Samples per chunk; only the last chunk may have fewer.
        skips: Whether the chunk of a number is read past and not yielded.

    Yields:
        Chunks in order. The one that ends the shard has `last` set and carries the shard's
        problems; for a shard without samples it is a single chunk without samples.

    Raises:
        InputError: The object is gone or not the planned version.
        OSError: The store failed in a way that a retry may mend.
    """
    index = 0
    pending: list[Sample] = []
    problems: list[Problem] = []
    for item in source.read(shard):
        if isinstance(item, Problem):
            problems.append(item)
            continue
        if len(pending) == chunk_samples:
            full, pending = tuple(pending), []
            if not skips(index):
                yield Chunk(shard.shard_id, index, index * chunk_samples, full, last=False)
            del full
            index += 1
        pending.append(item)
    if not skips(index):
        yield Chunk(
            shard.shard_id,
            index,
            index * chunk_samples,
            tuple(pending),
            last=True,
            problems=tuple(problems),
        )
