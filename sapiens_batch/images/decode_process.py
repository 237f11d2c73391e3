"""The process in which images are decoded: `python -m sapiens_batch.images.decode_process FD`.

Started and fed by `guard`. It ends when its standard input closes, which happens when the process
that started it ends, however it ends; an image that never finishes is ended by the kernel's alarm.
"""

from __future__ import annotations

import math
import os
import signal
import sys
from dataclasses import replace
from typing import Protocol

import cv2
import numpy as np

from sapiens_batch.child.exchange import MemoryFile, receive, send
from sapiens_batch.errors import SampleError
from sapiens_batch.images.decode import decode
from sapiens_batch.images.decoded import DecodedImage, DecodeOptions
from sapiens_batch.images.heap import keep_freed_memory
from sapiens_batch.images.messages import READY, Decoded, Refused, Request

# The parent ends a decoder that takes too long; the alarm is for decoders whose parent is gone.
_ORPHAN_GRACE_S = 30


class Decoder(Protocol):
    """What decodes: `decode`, or what stands in for it in a test of the guard."""

    def __call__(
        self, encoded: bytes, *, options: DecodeOptions, crop_density: float
    ) -> DecodedImage:
        """See `decode`."""


def serve(decoder: Decoder, descriptor: int) -> None:
    """Answer requests from standard input on standard output until the input closes.

    Args:
        decoder: What decodes.
        descriptor: Descriptor of the memory file.
    """
    memory = MemoryFile(descriptor)
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # what a library prints must not get between the answers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cv2.setNumThreads(1)
    keep_freed_memory()
    try:
        setup = receive(requests)
        send(answers, READY)
        _silence_libraries()
        while True:
            request = receive(requests)
            signal.alarm(math.ceil(setup.timeout_s) + _ORPHAN_GRACE_S)
            send(answers, _answer(decoder, memory, request, setup.options))
            signal.alarm(0)
    except (EOFError, BrokenPipeError):
        return


def _answer(
    decoder: Decoder, memory: MemoryFile, request: Request, options: DecodeOptions
) -> Decoded | Refused:
    encoded = memory.read_bytes(request.size_bytes)
    try:
        image = decoder(encoded, options=options, crop_density=request.crop_density)
    except SampleError as error:
        return Refused(error.reason, error.message)
    memory.write(image.pixels)
    return Decoded(replace(image, pixels=np.empty(0, np.uint8)), image.pixels.shape)


def _silence_libraries() -> None:
    """Drop what libtiff, libpng and libjpeg print about each damaged file: thousands of lines."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)


if __name__ == "__main__":
    serve(decode, int(sys.argv[1]))
