"""The first stage: read a span of a shard and prepare its chunks, in one CPU task.

A span gives the same chunks with the same numbers whenever it is read, which is what Ray's retries
stand on: what to skip and what is suspect is frozen into the `ShardTodo`. Trouble with a chunk goes
on as an `Outcome` in the chunk's place; trouble with the shard ends the span with one, and the rest
is read again in the next pass.

The attempts at reading are counted. A span that ended too many workers is read with care: its
shard, and each of its chunks, in processes that may die.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace

from sapiens_batch.failpoints import reach
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.stages.attempts import Attempts, IsolationError, reading_work
from sapiens_batch.stages.failures import failed_chunk
from sapiens_batch.stages.flow import Outcome, PreparedChunk, ReadChunk, SuspectChunk, failure_of
from sapiens_batch.stages.prepare import ChunkPreparer
from sapiens_batch.stages.prepare_apart import preparing_apart
from sapiens_batch.stages.read import ShardReader
from sapiens_batch.stages.read_apart import read_apart

Record = PreparedChunk | SuspectChunk | Outcome


@dataclass(frozen=True, slots=True)
class SpanReader:
    """Reads and prepares the spans of one job. Picklable.

    Attributes:
        reader: Reads a shard.
        preparer: Prepares a chunk.
        attempts: Counts attempts.
        max_attempts: Attempts after which a span is read with care, and with care after which it
            fails for the rest of the run.
    """

    reader: ShardReader
    preparer: ChunkPreparer
    attempts: Attempts
    max_attempts: int

    def read(self, todo: ShardTodo) -> Iterator[Record]:
        """One record for each chunk of a span that is not done, in order."""
        work, settle = reading_work(todo), self.attempts.excuse
        try:
            before = self.attempts.begin(work)
            if before < self.max_attempts:
                yield from self._read_here(todo)
                settle = self.attempts.end
            elif (yield from self._read_with_care(todo, before)):
                settle = self.attempts.end
        except Exception as error:  # the worker boundary: becomes data for the driver
            yield Outcome(None, failure_of(error, todo.shard.shard_id, None, "read"))
        finally:
            with contextlib.suppress(Exception):  # the run may be over
                settle(work)

    def _read_here(self, todo: ShardTodo) -> Iterator[Record]:
        for read in self.reader.read(todo):
            if read.header.index in todo.suspects:
                yield SuspectChunk(read.header, read.chunk)
            else:
                yield self._prepare(read)

    def _prepare(self, read: ReadChunk) -> PreparedChunk | Outcome:
        try:
            reach("prepare")
            return replace(self.preparer.prepare(read.chunk), header=read.header)
        except Exception as error:  # the worker boundary: becomes data for the driver
            failure = failed_chunk(error, read.header, "prepare", self.attempts, self.max_attempts)
            return Outcome(None, failure)

    def _read_with_care(self, todo: ShardTodo, num_before: int) -> Generator[Record, None, bool]:
        """The same in processes that may die; returns whether the span was read to its end."""
        work, is_whole = reading_work(todo), True
        num_careful = self.attempts.begin_isolated(work, self.max_attempts)
        if num_careful >= self.max_attempts:
            raise IsolationError(
                f"shard {todo.shard.key} ({todo.shard.uri}): reading it in a process of its own "
                f"ended {num_careful} workers in this run, most likely for want of memory. Run "
                "again on nodes with more memory, or mend or replace the object"
            )
        try:
            with preparing_apart(self.preparer, self.reader.stall_timeout_s) as prepare:
                for record in read_apart(self.reader, todo, num_before):
                    if isinstance(record, Outcome):
                        is_whole = False
                        yield record
                    elif record.header.index in todo.suspects:
                        yield SuspectChunk(record.header, record.chunk)
                    else:
                        yield prepare(record)
        finally:
            self.attempts.end_isolated(work)
        return is_whole
