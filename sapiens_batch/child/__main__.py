"""The process that a `Child` starts: `python -m sapiens_batch.child FD NAME`.

It answers the messages that come over the descriptor until there are no more; what answers is sent
to it first. Invariant: it ends with the process that started it, whatever it is doing (elsewhere
than on Linux, when it next speaks).
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

from sapiens_batch.child.channel import Channel
from sapiens_batch.child.child import End
from sapiens_batch.errors import SapiensBatchError


def serve(channel: Channel) -> None:
    """Answer messages until the other side is gone."""
    start = channel.receive()
    try:
        answers_to = start()
    except SapiensBatchError as error:
        channel.send(error)
        return
    channel.send(End())
    for message in _messages(channel):
        for answer in answers_to(message):
            channel.send(answer)
        channel.send(End())


def _messages(channel: Channel) -> Iterator[Any]:
    while True:
        try:
            yield channel.receive()
        except (EOFError, ConnectionError):
            return


def end_with_parent() -> None:
    """Have the kernel end this process (SIGIO) when the pipe at its standard input closes."""
    if sys.platform == "linux":
        fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    serve(Channel(int(sys.argv[1])))
