"""Whose turn it is in a label actor: one chunk on the device, others being stored beside it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Device:
    """The turns of the threads of one actor.

    Who has the device knows that no other chunk is begun. A chunk that is to be stored says so
    before it gives up the device, so that the next one can wait for all before it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_storing = 0
        self._changed = threading.Condition()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for the device, and have it."""
        with self._lock:
            yield

    @contextmanager
    def storing(self) -> Iterator[None]:
        """Be among those that store; entered with the device, left without it."""
        self._add(1)
        try:
            yield
        finally:
            self._add(-1)

    def wait_for_storing(self) -> None:
        """With the device: wait until nothing else is in flight in this actor."""
        with self._changed:
            self._changed.wait_for(lambda: self._num_storing == 0)

    def _add(self, count: int) -> None:
        with self._changed:
            self._num_storing += count
            self._changed.notify_all()
