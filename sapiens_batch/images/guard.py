"""Decoding in a process of its own, so that no image can end or stall a worker.

One decoder process for each thread that decodes, started on first use and used for image after
image. A crash or a hang costs the image that caused it and half a second. Which pixels come out is
left to `decode`.

Invariant: the outcome for an image does not depend on the images beside it. One that crashes the
decoder is tried once more in a fresh one, because a process can also be ended for want of memory.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from sapiens_batch.child.child import Child, DiedError, TimedOutError
from sapiens_batch.child.memory import MemoryFile
from sapiens_batch.images.decode import decode
from sapiens_batch.images.decode_process import Answer, Decoder, Request, start_decoding
from sapiens_batch.images.decoded import DecodedImage, DecodeOptions
from sapiens_batch.records import Problem

DEFAULT_TIMEOUT_S = 60.0

_ATTEMPTS = 2
# A group ends with the image that brings it to so many bytes, encoded or as pixels. From 1 to 16 MB
# of pixels the CPU for an image is the same; less costs more asking, 64 MB cost caches a third.
_GROUP_ENCODED_BYTES = 2**20
_GROUP_PIXELS_BYTES = 8 * 2**20
# What a decoder keeps of its memory after a huge image.
_KEPT_BYTES = 256 * 2**20


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.decoders: dict[tuple[DecodeOptions, float], GuardedDecoder] = {}


_of_thread = _OfThread()


class GuardedDecoder:
    """Decodes images in a child process. Not thread-safe.

    Args:
        options: What to decode to.
        timeout_s: Seconds that one image may take.
        decoder: What decodes in the child; picklable.
    """

    def __init__(
        self,
        options: DecodeOptions,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        decoder: Decoder = decode,
    ) -> None:
        self._timeout_s = timeout_s
        self._memory = MemoryFile()
        descriptor = self._memory.descriptor
        self._child = Child(
            partial(start_decoding, decoder, options, descriptor), pass_fds=[descriptor]
        )

    def decode_many(
        self,
        encoded: Sequence[bytes],
        crop_density: Sequence[float],
        *,
        together: int | None = None,
    ) -> Iterator[list[DecodedImage | Problem]]:
        """Decode images, group by group.

        Args:
            encoded: Image files.
            crop_density: See `decode`; one for each.
            together: Images a group, fewer beside one that ended the decoder; default: as many as
                are decoded at little cost in memory.

        Yields:
            Consecutive images, at least one. A problem is an error of `decode`, or `decode.crash`
            where the image ends the decoder twice, or `decode.timeout` where it takes too long.
            The memory of all pixels is used again for the next group.

        Raises:
            RuntimeError: The decoder process does not start.
        """
        done = deaths = 0  # images, and how often the first of the others ended the decoder
        while done < len(encoded):
            self._memory.trim(_KEPT_BYTES)
            stop = _group_stop(encoded, done) if together is None else done + together
            enough_bytes = _GROUP_PIXELS_BYTES if together is None else math.inf
            images: list[DecodedImage | Problem] = []
            try:
                for image in self._ask(encoded[done:stop], crop_density[done:stop], enough_bytes):
                    images.append(image)
                    deaths = 0
            except TimedOutError:
                images.append(self._timed_out(encoded[done + len(images)]))
                deaths = 0
            except DiedError as death:
                deaths += 1
                if deaths == _ATTEMPTS:
                    images.append(_crash(encoded[done + len(images)], death))
                    deaths = 0
            done += len(images)
            if images:
                yield images

    def close(self) -> None:
        """End the child process."""
        self._child.close()
        self._memory.close()

    @property
    def pid(self) -> int | None:
        """Process id of the child, or None while there is none."""
        return self._child.pid

    def _ask(
        self, encoded: Sequence[bytes], crop_density: Sequence[float], enough_bytes: float
    ) -> Iterator[DecodedImage | Problem]:
        together = b"".join(encoded)
        self._memory.array(0, (len(together),))[:] = np.frombuffer(together, np.uint8)
        request = Request(tuple(map(len, encoded)), tuple(crop_density), enough_bytes)
        for answer in self._child.ask_each(request, timeout_s=self._timeout_s):
            yield self._outcome(answer)

    def _outcome(self, answer: Answer) -> DecodedImage | Problem:
        if isinstance(answer, Problem):
            return answer
        return DecodedImage(self._memory.array(answer.offset, answer.shape), *answer.facts)

    def _timed_out(self, encoded: bytes) -> Problem:
        return Problem(
            "decode.timeout",
            f"{len(encoded)} bytes that begin with {encoded[:16]!r} took the decoder more than "
            f"{self._timeout_s:g} s; raise decode.timeout_s if the image is sound",
        )


def _group_stop(encoded: Sequence[bytes], start: int) -> int:
    stop, size_bytes = start, 0
    while stop < len(encoded) and size_bytes < _GROUP_ENCODED_BYTES:
        size_bytes += len(encoded[stop])
        stop += 1
    return stop


def _crash(encoded: bytes, death: DiedError) -> Problem:
    return Problem(
        "decode.crash",
        f"{len(encoded)} bytes that begin with {encoded[:16]!r} ended the decoder {_ATTEMPTS} "
        f"times ({death}); the file is damaged, or decoding it takes more memory than there is",
    )


def guarded_decoder(options: DecodeOptions, timeout_s: float) -> GuardedDecoder:
    """The decoder of this thread for some options, made on first use; it ends with the thread."""
    decoders, key = _of_thread.decoders, (options, timeout_s)
    if key not in decoders:
        decoders[key] = GuardedDecoder(options, timeout_s=timeout_s)
    return decoders[key]
