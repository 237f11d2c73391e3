"""The ledger of attempts: how often a chunk or shard was begun and never came through.

A stage leaves a mark in the store before it works on a chunk. The mark travels on with the chunk
and is removed when its receipt is there, so what is left counts attempts whose worker or driver
died, or that failed. It decides only between the usual way and `isolate`; labels are the same.
Ray would hand a chunk that ends its worker to the next worker for ever: the ledger bounds that.

A read task leaves a mark for its shard, removed when reading ends, with an error as well. It
decides only between the worker and `read_apart`; what is read is the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sapiens_batch.errors import SapiensBatchError
from sapiens_batch.job.manifest import ShardTodo
from sapiens_batch.pipeline.cells import ChunkHeader
from sapiens_batch.storage import Store, keys


class SuspectChunkError(Exception):
    """A chunk used up its attempts and came to a stage that works on whole chunks only."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a chunk, or to read a shard.

    Attributes:
        write_id: Name of its mark.
        num_before: Attempts before it that never came through.
    """

    write_id: str
    num_before: int


@dataclass(frozen=True, slots=True)
class AttemptLedger:
    """The attempts at the chunks and shards of a job.

    Attributes:
        store: The job directory.
        max_attempts: Attempts after which a chunk or shard is suspect.
    """

    store: Store
    max_attempts: int

    def begin(self, header: ChunkHeader, *, taken_over: str = "") -> Attempt:
        """Leave a mark and count the others.

        Args:
            header: The chunk.
            taken_over: The mark of the stage before, removed once this one's is there; empty where
                there is none, or where it stands for an attempt that died.

        Raises:
            StorageError: The store refused.
        """
        write_id = uuid.uuid4().hex
        self.store.create(_mark(header, write_id), b"")
        if taken_over:
            self.store.delete(_mark(header, taken_over))
        folder = keys.attempts(header.shard_id, header.index, header.generation)
        return self._count(folder, write_id)

    @contextmanager
    def reading(self, todo: ShardTodo) -> Iterator[Attempt]:
        """Leave a mark while a shard is read, and count the others.

        Raises:
            StorageError: The store refused.
        """
        shard_id, generation, write_id = todo.shard.shard_id, todo.generation, uuid.uuid4().hex
        mark = keys.attempt(shard_id, None, write_id, generation)
        self.store.create(mark, b"")
        try:
            yield self._count(keys.attempts(shard_id, None, generation), write_id)
        finally:
            self.store.delete(mark)

    def _count(self, folder: str, write_id: str) -> Attempt:
        """The attempt whose mark is in a folder, with the number of other marks there."""
        marks = self.store.list(folder)
        return Attempt(write_id, sum(not info.key.endswith(write_id) for info in marks))

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
        """Remove the attempt's mark when what fails is not the chunk's fault.

        Errors that are raised on purpose speak of weights or storage, which are the same for every
        chunk; any other exception counts against the chunk.
        """
        try:
            yield
        except SapiensBatchError:
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
