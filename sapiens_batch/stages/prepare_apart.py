"""Chunks prepared in a process that may die or hang, for a span that ended who prepared it.

A chunk that ends the process, or takes it too long, is handed on undecoded: its samples are then
labeled one by one. The others leave as they would have left the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial

from sapiens_batch.child.child import Child, DiedError, TimedOutError
from sapiens_batch.errors import SapiensBatchError
from sapiens_batch.records import Chunk
from sapiens_batch.stages.flow import PreparedChunk, ReadChunk, SuspectChunk
from sapiens_batch.stages.prepare import ChunkPreparer

Prepare = Callable[[ReadChunk], PreparedChunk | SuspectChunk]


@contextmanager
def preparing_apart(preparer: ChunkPreparer, timeout_s: float | None) -> Iterator[Prepare]:
    """A function that prepares one chunk after the other in a process of its own.

    Args:
        preparer: Prepares them.
        timeout_s: Seconds that a chunk may take; None for no limit.
    """
    with closing(Child[Chunk, PreparedChunk | Exception](partial(_start, preparer))) as child:

        def prepare(read: ReadChunk) -> PreparedChunk | SuspectChunk:
            suspect = SuspectChunk(read.header, read.chunk)
            try:
                answer = child.ask(read.chunk, timeout_s=timeout_s)
            except (DiedError, TimedOutError):
                return suspect
            if isinstance(answer, SapiensBatchError):
                raise answer
            return suspect if isinstance(answer, Exception) else replace(answer, header=read.header)

        yield prepare


def _start(preparer: ChunkPreparer) -> Callable[[Chunk], Iterable[PreparedChunk | Exception]]:
    def prepare(chunk: Chunk) -> Iterator[PreparedChunk | Exception]:
        try:
            yield preparer.prepare(chunk)
        except Exception as error:  # what it means is decided by who asked
            yield error

    return prepare
