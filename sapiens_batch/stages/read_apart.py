"""A shard that ended every process that read it, read in a process that may die or hang.

The chunks before the place that ends or stalls it get their labels. How many samples the rest has
is not known, so the shard stays open and is reported: no row is invented, none is lost in silence
(I1).
The process is this module, run as `python -m`; it ends when its input does, so it does not outlive
the worker that started it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

from sapiens_batch.child.exchange import receive, send
from sapiens_batch.child.processes import end_process, ending, module_command, start_process
from sapiens_batch.errors import InputError
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.stages.flow import Outcome, ReadChunk, failure_of
from sapiens_batch.stages.read import ShardReader

_END = "end"


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
    process = start_process(module_command("sapiens_batch.stages.read_apart"))
    last = None
    try:
        assert process.stdin is not None and process.stdout is not None
        send(process.stdin.fileno(), (reader, todo))
        answers, timeout_s = process.stdout.fileno(), reader.stall_timeout_s
        while (record := receive(answers, timeout_s=timeout_s)) != _END:
            last = record.header.index if isinstance(record, ReadChunk) else last
            yield record
    except (EOFError, BrokenPipeError):
        crash = _crash(todo, num_before, ending(process), last)
        yield Outcome(None, failure_of(crash, todo.shard.shard_id, None, "read"))
    except TimeoutError:
        stall = _stall(todo, reader.stall_timeout_s, last)
        yield Outcome(None, failure_of(stall, todo.shard.shard_id, None, "read"))
    finally:
        end_process(process)


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


def serve() -> None:
    """Read the shard that standard input names; records go to standard output."""
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # what a library prints must not get between the answers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, BrokenPipeError):
        reader, todo = receive(requests)
        threading.Thread(target=_follow, args=(requests,), daemon=True).start()
        try:
            for chunk in reader.read(todo):
                send(answers, chunk)
        except BrokenPipeError:
            raise
        except Exception as error:  # the worker boundary: becomes data for the driver
            send(answers, Outcome(None, failure_of(error, todo.shard.shard_id, None, "read")))
        send(answers, _END)


def _follow(requests: int) -> None:
    """End with the worker, whatever reading hangs on."""
    os.read(requests, 1)
    os._exit(0)


if __name__ == "__main__":
    serve()
