"""The ledger of attempts: how often a chunk or shard was begun and never came through.

A stage leaves a mark in the store before it works on a chunk. The mark travels on with the chunk
and is removed when its receipt is there, so what is left counts attempts whose worker or driver
died, or that failed. It decides only between the usual way and `isolate`; labels are the same.
Ray would hand a chunk that ends its worker to the next worker for ever: the ledger bounds that.

A read task leaves a mark for its shard, removed when reading ends, with an error as well. It
decides only between the worker and `read_apart`; what is read is the same.

Isolated work can end its worker as well, for want of memory. Its marks begin with the id of the
run: `max_attempts` of one run, and the chunk or shard fails for the rest of that run. Earlier runs
do not count, because drivers that were killed leave the same marks.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from sapiens_batch.errors import SapiensBatchError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.storage import Store

_RUN_DIGITS = 16
"""Of the 32 hex digits of a mark's name, those that isolated attempts of one run share."""


class SuspectChunkError(Exception):
    """A chunk used up its attempts and came to a stage that works on whole chunks only."""


class IsolationError(Exception):
    """A chunk or shard ended its workers in isolation as well."""


def _new_run() -> str:
    return uuid.uuid4().hex[:_RUN_DIGITS]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a chunk, or to read a shard.

    Attributes:
        write_id: Name of its mark.
        num_before: Attempts before it that never came through.
        num_isolated: Those of them that were isolated, in this run.
    """

    write_id: str
    num_before: int
    num_isolated: int


@dataclass(frozen=True, slots=True)
class AttemptLedger:
    """The attempts at the chunks and shards of a job.

    Attributes:
        store: The job directory.
        max_attempts: Attempts after which a chunk or shard is suspect, and isolated attempts after
            which it fails for the rest of the run.
        run: Id of the run, 16 hex digits, new for each ledger that is not a copy.
    """

    store: Store
    max_attempts: int
    run: str = field(default_factory=_new_run)

    def begin(self, header: ChunkHeader, *, taken_over: str = "") -> Attempt:
        """Leave a mark and count the others.

        Args:
            header: The chunk.
            taken_over: The mark of the stage before, removed once this one's is there; empty where
                there is none, or where it stands for an attempt that died.

        Raises:
            StorageError: The store refused.
        """
        return self._begin(header, uuid.uuid4().hex, taken_over)

    def begin_isolated(self, header: ChunkHeader) -> ChunkHeader:
        """Leave the mark of an isolated attempt, in place of the stage before's.

        Args:
            header: The chunk, with the mark of the stage before.

        Returns:
            The header with the new mark.

        Raises:
            IsolationError: It ended too many workers in this run.
            StorageError: The store refused.
        """
        attempt = self._begin(header, self._isolated_id(), header.attempt)
        header = replace(header, attempt=attempt.write_id)
        if attempt.num_isolated >= self.max_attempts:
            self.end(header)
            raise IsolationError(
                f"chunk {header.index} of shard {header.shard_id} (samples {header.start} to "
                f"{header.stop - 1}): labeling its samples one by one ended {attempt.num_isolated} "
                "workers in this run, most likely for want of memory. Run again on nodes with more "
                "memory, or label into another output.uri with a smaller output.chunk_samples or "
                "persons.max_persons"
            )
        return header

    @contextmanager
    def reading(self, todo: ShardTodo) -> Iterator[Attempt]:
        """Leave a mark while a shard is read, and count the others.

        Raises:
            IsolationError: The shard is suspect, and ended too many workers in this run that read
                it in a process of its own.
            StorageError: The store refused.
        """
        with self._reading(todo, uuid.uuid4().hex) as attempt:
            if not self.is_suspect(attempt):
                yield attempt
                return
        with self._reading(todo, self._isolated_id()) as attempt:
            if attempt.num_isolated >= self.max_attempts:
                raise IsolationError(
                    f"shard {todo.shard.key} ({todo.shard.uri}): reading it in a process of its "
                    f"own ended {attempt.num_isolated} workers in this run, most likely for want "
                    "of memory. Run again on nodes with more memory, or mend or replace the object"
                )
            yield attempt

    @contextmanager
    def _reading(self, todo: ShardTodo, write_id: str) -> Iterator[Attempt]:
        shard_id, generation = todo.shard.shard_id, todo.generation
        mark = keys.attempt(shard_id, None, write_id, generation)
        self.store.create(mark, b"")
        try:
            yield self._count(keys.attempts(shard_id, None, generation), write_id)
        finally:
            self.store.delete(mark)

    def _begin(self, header: ChunkHeader, write_id: str, taken_over: str) -> Attempt:
        self.store.create(_mark(header, write_id), b"")
        if taken_over:
            self.store.delete(_mark(header, taken_over))
        folder = keys.attempts(header.shard_id, header.index, header.generation)
        return self._count(folder, write_id)

    def _count(self, folder: str, write_id: str) -> Attempt:
        """The attempt whose mark is in a folder, with the numbers of other marks there."""
        names = [info.key.removeprefix(folder) for info in self.store.list(folder)]
        others = [name for name in names if name != write_id]
        return Attempt(write_id, len(others), sum(map(self._is_isolated, others)))

    def _isolated_id(self) -> str:
        return self.run + uuid.uuid4().hex[_RUN_DIGITS:]

    def _is_isolated(self, write_id: str) -> bool:
        return write_id.startswith(self.run)

    def is_suspect(self, attempt: Attempt) -> bool:
        """Whether the chunk or shard used up its attempts before this one."""
        return attempt.num_before >= self.max_attempts

    def refuse_suspect(self, header: ChunkHeader, attempt: Attempt) -> None:
        """Send a suspect chunk back, for a stage that cannot isolate it.

        Raises:
            SuspectChunkError: It used up its attempts; the next pass isolates it.
        """
        if self.is_suspect(attempt):
            self.end(header)
            raise SuspectChunkError(
                f"chunk {header.index} of shard {header.shard_id} was begun {attempt.num_before} "
                "times and never finished; its samples will be labeled one by one"
            )

    @contextmanager
    def excusing(self, header: ChunkHeader) -> Iterator[None]:
        """Remove the attempt's mark when what fails does not count against the chunk.

        Errors that are raised on purpose speak of weights or storage, which are the same for every
        chunk; any other exception counts. None counts in isolation, where only the death of a
        worker would go on without end.
        """
        try:
            yield
        except Exception as error:
            if isinstance(error, SapiensBatchError) or self._is_isolated(header.attempt):
                self.end(header)
            raise

    def end(self, header: ChunkHeader) -> None:
        """Remove the mark of an attempt that ended in order.

        Raises:
            StorageError: The store refused.
        """
        self.store.delete(_mark(header, header.attempt))


def _mark(header: ChunkHeader, write_id: str) -> str:
    return keys.attempt(header.shard_id, header.index, write_id, header.generation)
