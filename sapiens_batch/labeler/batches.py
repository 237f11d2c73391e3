"""How many views go through a model at once, where memory may not suffice for the number wanted.

What is done with a batch is the caller's. Every view is passed exactly once, in order, whatever
runs out of memory on the way.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final, TypeVar

import torch

from sapiens_batch.models.memory import is_out_of_memory

T = TypeVar("T")

PATIENCE: Final = 16
"""Batches that must succeed before a larger size is tried again."""


class AdaptiveBatches:
    """Batches of the wanted size, halved while memory does not suffice, doubled again later.

    Args:
        wanted: Views per batch, at least 1.
    """

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._size = wanted
        self._num_good = 0

    @property
    def size(self) -> int:
        """Views of the next batch."""
        return self._size

    def run(self, count: int, work: Callable[[int, int], T]) -> list[T]:
        """Work through `[0, count)`.

        Args:
            count: Number of views.
            work: Called with the bounds of each batch, half-open.

        Returns:
            What each batch gave, in order.

        Raises:
            RuntimeError: Memory does not suffice for a single view.
        """
        results: list[T] = []
        start = 0
        while start < count:
            stop = min(start + self._size, count)
            try:
                results.append(work(start, stop))
            except RuntimeError as error:
                if stop - start == 1 or not is_out_of_memory(error):
                    raise
                self._shrink(stop - start)
                continue
            start = stop
            self._grow()
        return results

    def _shrink(self, failed: int) -> None:
        self._size = max(1, failed // 2)
        self._num_good = 0
        # what the failed batch still holds would be missing to the smaller one
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _grow(self) -> None:
        self._num_good += 1
        if self._size < self._wanted and self._num_good >= PATIENCE:
            self._size = min(self._wanted, 2 * self._size)
            self._num_good = 0
