"""Encoders through `torch.compile`, which generates code for each shape of batch that it meets.

Batches are padded to powers of two, so that there are few shapes. What a view is encoded to does
not change beyond rounding. Heads are left as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.exc import TorchDynamoException

from sapiens_batch.errors import SpecError
from sapiens_batch.models.encoder import Encoding, Stage
from sapiens_batch.models.memory import is_out_of_memory
from sapiens_batch.models.weights import AnyEncoder


class CompiledEncoder:
    """An encoder that is compiled when it is first called, for one shape of batch at a time.

    Args:
        encoder: The encoder.
        backend: What generates code; the name of one of torch's, or a function.
    """

    def __init__(
        self, encoder: AnyEncoder, *, backend: str | Callable[..., Any] = "inductor"
    ) -> None:
        # isolated, because all encoders of a class would share one limit of shapes; the argument is
        # missing in the overloads of torch 2.13
        self._encode: Callable[..., Encoding] = torch.compile(  # type: ignore[call-overload]
            encoder,
            dynamic=False,
            backend=backend,
            isolate_recompiles=True,
        )

    def __call__(self, pixels: Tensor, stages: Collection[Stage]) -> Encoding:
        """As the encoder, of (n, 3, H, W) normalised views.

        Raises:
            SpecError: Code cannot be generated on this machine.
        """
        count = len(pixels)
        padding = (1 << (count - 1).bit_length()) - count
        padded = torch.cat([pixels, pixels[-1:].expand(padding, -1, -1, -1)])
        try:
            return self._encode(padded, stages).select(0, count)
        except TorchDynamoException as error:
            if is_out_of_memory(error):
                raise
            reason = " ".join(str(error).strip().splitlines()[:2])  # who raised, and what
            raise SpecError(
                f"runtime.compile: true, but torch.compile fails on this machine ({reason}): it "
                "needs a C++ compiler, and Triton on a GPU; install them, or leave it out"
            ) from error
