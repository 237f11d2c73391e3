"""A process of our own that may die of its work, or hang over it, and is replaced when it does.

What it works on is left to the packages above; what runs in it is `__main__`. Whatever becomes of
the process, whoever asks gets an answer, `DiedError` or `TimedOutError`, and may ask again.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

from sapiens_batch.child.channel import Channel

M = TypeVar("M")
A = TypeVar("A")

START_TIMEOUT_S: Final = 120.0


class End:
    """What follows the last answer to a message."""


class DiedError(Exception):
    """The process ended before it had answered; says with which exit status or signal."""


class TimedOutError(Exception):
    """The next answer was not there in time; the process was ended."""


class Child(Generic[M, A]):
    """One process at a time, started when it is asked and there is none. Not thread-safe.

    The process ends with this object, and with the process that holds it, however that ends.

    Args:
        start: Called in each new process, makes what answers messages: from a message, its
            answers one after the other. Must be picklable. A `SapiensBatchError` of its own is
            raised to who asks.
        start_timeout_s: Seconds that importing and calling it may take.
        pass_fds: Descriptors of ours that the process keeps.
    """

    def __init__(
        self,
        start: Callable[[], Callable[[M], Iterable[A]]],
        *,
        start_timeout_s: float = START_TIMEOUT_S,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._start = start
        self._start_timeout_s = start_timeout_s
        self._pass_fds = tuple(pass_fds)
        self._running: _Running | None = None

    def ask(self, message: M, *, timeout_s: float | None) -> A:
        """The only answer to a message; see `ask_each`."""
        (answer,) = self.ask_each(message, timeout_s=timeout_s)
        return answer

    def ask_each(self, message: M, *, timeout_s: float | None) -> Iterator[A]:
        """The answers to a message; who does not take them all ends the process.

        Args:
            message: A picklable value.
            timeout_s: Seconds that each answer may take.

        Raises:
            DiedError: The process ended.
            TimedOutError: It was ended, because an answer took too long.
            SapiensBatchError: Raised by `start`.
            RuntimeError: The process does not start.
        """
        if self._running is None:
            self._start_process()
        yield from self._answers(message, timeout_s)

    def close(self) -> None:
        """End the process, if there is one."""
        if self._running is not None:
            self._running.close()
            self._running = None

    @property
    def pid(self) -> int | None:
        """Process id, or None while there is none."""
        return None if self._running is None else self._running.process.pid

    def _start_process(self) -> None:
        self._running = _Running(self._start, self._pass_fds)
        command = self._running.command
        try:
            for error in self._answers(self._start, self._start_timeout_s):
                raise error
        except (DiedError, TimedOutError) as failure:
            raise RuntimeError(f"the process `{command}` does not start: {failure}") from failure

    def _answers(self, message: object, timeout_s: float | None) -> Iterator[Any]:
        assert self._running is not None
        channel, process = self._running.channel, self._running.process
        done = False
        try:
            channel.send(message)
            while not isinstance(answer := channel.receive(timeout_s), End):
                yield answer
            done = True
        except TimeoutError as error:
            raise TimedOutError(f"no answer after {timeout_s} s") from error
        except (EOFError, ConnectionError) as error:
            raise DiedError(_ending(process.wait())) from error
        finally:
            if not done:
                self.close()


class _Running:
    """A process and the connection to it."""

    def __init__(self, start: Callable[[], object], pass_fds: Sequence[int]) -> None:
        ours, theirs = socket.socketpair()
        descriptor = theirs.fileno()
        # -P: a folder named like ours where we happen to be is none of our code;
        # the name is for those who look at a list of processes
        name = getattr(start, "func", start).__module__
        command = [sys.executable, "-P", "-m", "sapiens_batch.child", str(descriptor), name]
        with theirs:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # nothing is written to it: its end is the end of us
                stdout=2,  # what a library prints
                pass_fds=[descriptor, *pass_fds],
                # workers may find the package by paths that were added while they ran
                env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            )
        self.command = shlex.join(command)
        self.channel = Channel(ours.fileno())
        self.close = weakref.finalize(self, _end, self.process, ours)


def _end(process: subprocess.Popen[bytes], connection: socket.socket) -> None:
    process.kill()
    process.wait()
    connection.close()
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()


def _ending(code: int) -> str:
    return f"exit status {code}" if code >= 0 else signal.Signals(-code).name
