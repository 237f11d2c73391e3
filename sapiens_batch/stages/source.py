"""The Ray datasource: one read task per shard, one row per chunk.

Read tasks are deterministic. Which chunks to skip is frozen into the task before the job starts; a
task that looked it up while running would lose data silently when Ray re-runs it. The ledger of
attempts decides only where a shard is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from ray.data import DataContext, Datasource
from ray.data.block import BlockMetadata
from ray.data.datasource import ReadTask

from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.stages.attempts import AttemptLedger
from sapiens_batch.stages.flow import Outcome, failure_of, pack
from sapiens_batch.stages.read import ShardReader
from sapiens_batch.stages.read_apart import read_apart


def read_shard(reader: ShardReader, ledger: AttemptLedger, todo: ShardTodo) -> Iterator[pa.Table]:
    """Yield one packed `ReadChunk` per chunk of a shard that is not done.

    Trouble with the shard as a whole ends it with an `Outcome` that carries the failure; the chunks
    before it are good, the rest is read again in the next pass. A shard that used up its attempts
    is read in a process of its own.
    """
    try:
        with ledger.reading(todo) as attempt:
            if ledger.is_suspect(attempt):
                yield from map(pack, read_apart(reader, todo, attempt.num_before))
            else:
                yield from map(pack, reader.read(todo))
    except Exception as error:  # the worker boundary: becomes data for the driver
        yield pack(Outcome(None, failure_of(error, todo.shard.shard_id, None, "read")))


class ShardSource(Datasource):
    """The shards that are still to be labeled.

    Args:
        reader: Reads a shard.
        ledger: Counts the attempts at reading one.
        todo: Shards with the chunks to skip, frozen.
    """

    def __init__(
        self, reader: ShardReader, ledger: AttemptLedger, todo: Sequence[ShardTodo]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # ray leaves it untyped
        self._reader = reader
        self._ledger = ledger
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
            ReadTask(partial(read_shard, self._reader, self._ledger, item), metadata)
            for item in self._todo
        ]
