"""The Ray datasource: one read task per shard, one row per chunk.

Read tasks are deterministic. Which chunks to skip is frozen into the task before the job starts; a
task that looked it up while running would lose data silently when Ray re-runs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from ray.data import DataContext, Datasource
from ray.data.block import BlockMetadata
from ray.data.datasource import ReadTask

from sapiens_batch.job.manifest import ShardTodo
from sapiens_batch.job.spec import SourceSpec
from sapiens_batch.pipeline.cells import ChunkHeader, Outcome, ReadChunk, failure_of, pack
from sapiens_batch.records import Chunk
from sapiens_batch.sources import make_source
from sapiens_batch.sources.chunks import iter_chunks


def read_chunks(spec: SourceSpec, chunk_samples: int, todo: ShardTodo) -> Iterator[ReadChunk]:
    """The chunks of a shard that are not done, with their samples that are to be labeled.

    Raises:
        InputError, OSError: As for `sources.chunks.iter_chunks`.
    """
    source = make_source(spec)
    for chunk in iter_chunks(source, todo.shard, chunk_samples, todo.done_chunks):
        yield _ordered(chunk, todo)


def read_shard(spec: SourceSpec, chunk_samples: int, todo: ShardTodo) -> Iterator[pa.Table]:
    """Yield one packed `ReadChunk` per chunk of a shard that is not done.

    Trouble with the shard as a whole ends it with an `Outcome` that carries the failure; the chunks
    before it are good, the rest is read again in the next pass.
    """
    try:
        for read in read_chunks(spec, chunk_samples, todo):
            yield pack(read)
    except Exception as error:  # the worker boundary: becomes data for the driver
        yield pack(Outcome(None, failure_of(error, todo.shard.shard_id, None, "read")))


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


class ShardSource(Datasource):
    """The shards that are still to be labeled.

    Args:
        spec: How to read a shard.
        chunk_samples: Samples per chunk.
        todo: Shards with the chunks to skip, frozen.
    """

    def __init__(self, spec: SourceSpec, chunk_samples: int, todo: Sequence[ShardTodo]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # ray leaves it untyped
        self._spec = spec
        self._chunk_samples = chunk_samples
        self._todo = tuple(todo)

    def estimate_inmemory_data_size(self) -> int | None:
        """Unknown before reading; None keeps Ray from guessing block counts."""
        return None

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """One task per shard; `parallelism` is a hint that is not needed."""
        metadata = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
        return [
            ReadTask(partial(read_shard, self._spec, self._chunk_samples, item), metadata)
            for item in self._todo
        ]
