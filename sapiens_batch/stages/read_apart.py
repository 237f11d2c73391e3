"""A shard that ended every process that read it, read in a process that may die or hang.

The chunks before the place that ends or stalls it get their labels. How many samples the rest has
is not known, so the shard stays open and is reported: no row is invented, none is lost in silence
(I1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

from sapiens_batch.child.child import Child, DiedError, TimedOutError
from sapiens_batch.errors import InputError
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.stages.flow import Outcome, ReadChunk, failure_of
from sapiens_batch.stages.read import ShardReader


class ReaderCrashError(InputError):
    """Reading a shard ends the process that does it, again and again."""


class ReaderStallError(InputError):
    """Reading a shard takes for ever, or longer than it may."""


def read_apart(
    reader: ShardReader, todo: ShardTodo, num_before: int
) -> Iterator[ReadChunk | Outcome]:
    """Read a shard in a process of its own, as far as that lives and goes on.

    Args:
        reader: Reads it.
        todo: The shard and what to skip.
        num_before: Attempts before this one that never came through.

    Yields:
        The chunks that `ShardReader.read` yields; in the end an `Outcome` with the failure where
        it raised, or the process died or hung.
    """
    last = None
    with closing(Child(partial(_start, reader))) as child:
        try:
            for record in child.ask_each(todo, timeout_s=reader.stall_timeout_s):
                last = record.header.index if isinstance(record, ReadChunk) else last
                yield record
        except DiedError as death:
            crash = _crash(todo, num_before, str(death), last)
            yield Outcome(None, failure_of(crash, todo.shard.shard_id, None, "read"))
        except TimedOutError:
            stall = _stall(todo, reader.stall_timeout_s, last)
            yield Outcome(None, failure_of(stall, todo.shard.shard_id, None, "read"))


def _start(reader: ShardReader) -> Callable[[ShardTodo], Iterator[ReadChunk | Outcome]]:
    return partial(_read, reader)


def _read(reader: ShardReader, todo: ShardTodo) -> Iterator[ReadChunk | Outcome]:
    try:
        yield from reader.read(todo)
    except Exception as error:  # the worker boundary: becomes data for the driver
        yield Outcome(None, failure_of(error, todo.shard.shard_id, None, "read"))


def _crash(todo: ShardTodo, num_before: int, how: str, last: int | None) -> ReaderCrashError:
    return ReaderCrashError(
        f"shard {todo.shard.key} ({todo.shard.uri}): reading it ended {num_before} workers, and "
        f"then a process of its own {_place(last)} ({how}). The chunks up to there are labeled, "
        "the shard stays open; mend or replace the object, or take it out of the input"
    )


def _stall(todo: ShardTodo, timeout_s: float | None, last: int | None) -> ReaderStallError:
    return ReaderStallError(
        f"shard {todo.shard.key} ({todo.shard.uri}): reading it {_place(last)} took more than "
        f"{timeout_s or 0:g} s. The chunks up to there are labeled, the shard stays open; mend or "
        "replace the object or what it is stored on, or raise runtime.no_progress_timeout_s"
    )


def _place(last: int | None) -> str:
    return "before its first chunk" if last is None else f"after chunk {last}"
