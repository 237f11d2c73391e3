"""Batches that shrink while memory does not suffice, and grow again."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sapiens_batch.labeler.batches import PATIENCE, AdaptiveBatches


@dataclass
class Memory:
    """Work that needs one unit of memory a view."""

    room: int
    sizes: list[int] = field(default_factory=list)

    def work(self, start: int, stop: int) -> list[int]:
        self.sizes.append(stop - start)
        if stop - start > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return list(range(start, stop))


@settings(max_examples=25, deadline=None)
@given(count=st.integers(0, 70), wanted=st.integers(1, 40), room=st.integers(1, 40))
def test_every_view_is_worked_on_once_and_in_order(count: int, wanted: int, room: int) -> None:
    done = AdaptiveBatches(wanted).run(count, Memory(room).work)
    assert [view for part in done for view in part] == list(range(count))


def test_the_size_is_halved_and_doubled_again_after_patience() -> None:
    batches, memory = AdaptiveBatches(8), Memory(room=4)
    batches.run(8, memory.work)
    assert memory.sizes == [8, 4, 4]
    memory.room = 8
    batches.run(4 * PATIENCE, memory.work)
    assert batches.size == 8
    assert memory.sizes[-1] == 8


def test_a_single_view_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        AdaptiveBatches(4).run(3, Memory(room=0).work)


def test_an_error_of_another_kind_is_not_tried_again() -> None:
    def fail(start: int, stop: int) -> None:
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        AdaptiveBatches(4).run(3, fail)
