"""The Ray datasource: read tasks of a few spans each, one row per chunk.

Read tasks are deterministic. Which chunks to skip is frozen into the task before the job starts; a
task that looked it up while running would lose data silently when Ray runs it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
import ray
from ray.data import DataContext, Datasource
from ray.data.block import BlockMetadata
from ray.data.datasource import ReadTask

from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.stages.flow import pack
from sapiens_batch.stages.span import SpanReader


def read_spans(reader: ray.ObjectRef[SpanReader], spans: Sequence[ShardTodo]) -> Iterator[pa.Table]:
    """Yield one packed record for each chunk of some spans that is not done."""
    span_reader: SpanReader = ray.get(reader)
    for todo in spans:
        yield from map(pack, span_reader.read(todo))


class SpanSource(Datasource):
    """The spans that are still to be labeled.

    Args:
        reader: Reads a span.
        tasks: The spans of each read task, with what to skip, frozen.
    """

    def __init__(self, reader: SpanReader, tasks: Sequence[Sequence[ShardTodo]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # ray leaves it untyped
        shared = ray.put(reader)  # once, and not into each of some thousand tasks
        metadata = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
        self._tasks = [
            ReadTask(partial(read_spans, shared, tuple(spans)), metadata) for spans in tasks
        ]

    def estimate_inmemory_data_size(self) -> int | None:
        """Unknown before reading; None keeps Ray from guessing block counts."""
        return None

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """The tasks; `parallelism` is a hint that is not needed."""
        return list(self._tasks)
