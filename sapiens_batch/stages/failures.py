"""What an exception says about the chunk that it met: whether it counts as an attempt.

Errors that are raised on purpose speak of the spec, weights or storage, which are the same for
every chunk. Any other exception counts, and may be what makes the chunk suspect.
"""

from __future__ import annotations

from dataclasses import replace

from sapiens_batch.errors import SapiensBatchError
from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.stages.attempts import Attempts, SuspectError, chunk_work, describe
from sapiens_batch.stages.flow import Failure, failure_of


def failed_chunk(
    error: Exception, header: ChunkHeader, stage: str, attempts: Attempts, max_attempts: int
) -> Failure:
    """The failure of a chunk whose attempt was not counted yet; counts it where it counts."""
    failure = failure_of(error, header.shard_id, header.index, stage)
    if isinstance(error, SapiensBatchError):
        return failure
    num_before = attempts.begin(chunk_work(header))
    return replace(failure, suspect=num_before + 1 >= max_attempts)


def suspect_chunk(header: ChunkHeader, num_before: int) -> Failure:
    """The answer to a chunk that used up its attempts."""
    error = SuspectError(
        f"{describe(header)} was begun {num_before} times and never finished; its samples will be "
        "labeled one by one"
    )
    return replace(failure_of(error, header.shard_id, header.index, "label"), suspect=True)
