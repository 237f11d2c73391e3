"""What the labeling stage makes of exceptions."""

from __future__ import annotations

import pytest

from sapiens_batch.stages.view_labeler import is_device_lost, is_out_of_memory


@pytest.mark.parametrize(
    ("error", "lost", "out_of_memory"),
    [
        (RuntimeError("CUDA error: an illegal memory access was encountered"), True, False),
        (RuntimeError("CUDA error: device-side assert triggered"), True, False),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), False, True),
        (RuntimeError("CUDA error: out of memory"), False, True),
        (MemoryError(), False, True),
        (RuntimeError("shape mismatch"), False, False),
        (ValueError("CUDA error: quoted by somebody"), False, False),
    ],
)
def test_only_errors_that_outlast_the_call_cost_the_process(
    error: Exception, lost: bool, out_of_memory: bool
) -> None:
    assert (is_device_lost(error), is_out_of_memory(error)) == (lost, out_of_memory)
