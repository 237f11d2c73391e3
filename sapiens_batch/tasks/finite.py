"""What becomes of raw outputs that are not numbers: a problem in the row, never a label.

Overflow in a low precision is the usual cause. Which values count is left to the tasks.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from sapiens_batch.records import Problem

NON_FINITE = "label.non_finite"
"""Reason of a problem: the model gave NaN or infinity where a label should be."""


def finite_maps(maps: Tensor) -> Tensor:
    """(n,) whether each of (n, ...) float32 maps is finite throughout.

    A finite sum has finite terms; only maps without one are looked at value by value.
    """
    finite = maps.flatten(1).sum(1).isfinite()
    for index in (~finite).nonzero()[:, 0].tolist():
        finite[index] = maps[index].isfinite().all()
    return finite


def all_finite(maps: Tensor) -> list[bool]:
    """Whether each of (n, ...) float32 maps is finite throughout."""
    finite: list[bool] = finite_maps(maps).tolist()
    return finite


def non_finite_problems(finite: Sequence[bool], what: str) -> tuple[Problem | None, ...]:
    """A problem for each view whose raw output is not finite throughout."""
    problem = Problem(
        NON_FINITE,
        f"the model gave NaN or infinite values for {what}: the label is left out; try "
        "runtime.dtype float32",
    )
    return tuple(None if good else problem for good in finite)
