"""Decoding in a process of its own, so that no image can end or stall a worker.

One decoder process for each worker process, started on first use and used for image after image. A
crash or a hang costs the image that caused it and half a second. Which pixels come out is left to
`decode`.

Invariant: the outcome for an image does not depend on the images before it. One that crashes the
decoder is tried once more in a fresh one, because a process can also be ended for want of memory.
"""

from __future__ import annotations

import atexit
import shlex
import threading
from collections.abc import Sequence
from dataclasses import replace

from sapiens_batch.child.exchange import MemoryFile, receive, send
from sapiens_batch.child.processes import end_process, ending, module_command, start_process
from sapiens_batch.errors import SampleError
from sapiens_batch.images.decoded import DecodedImage, DecodeOptions
from sapiens_batch.images.messages import READY, Decoded, Request, Setup
from sapiens_batch.images.reduction import NEVER

DEFAULT_TIMEOUT_S = 60.0

_COMMAND = module_command("sapiens_batch.images.decode_process")
_START_TIMEOUT_S = 120.0
_ATTEMPTS = 2
# A decoder keeps the memory of the largest image so far; after a huge one it is ended instead.
_KEPT_BYTES = 256 * 2**20

_decoders: dict[tuple[DecodeOptions, float], GuardedDecoder] = {}
_decoders_lock = threading.Lock()


class GuardedDecoder:
    """Decodes images in a child process.

    Args:
        options: What to decode to.
        timeout_s: Seconds that one image may take.
        command: The child's command line; the descriptor of the memory file is appended.
    """

    def __init__(
        self,
        options: DecodeOptions,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        command: Sequence[str] = _COMMAND,
    ) -> None:
        self._setup = Setup(options, timeout_s)
        self._command = tuple(command)
        self._child: _Child | None = None
        self._lock = threading.Lock()

    def decode(self, encoded: bytes, *, crop_density: float = NEVER) -> DecodedImage:
        """Decode one image; see `decode`.

        Raises:
            SampleError: As `decode`, or `decode.crash` where the image ends the decoder twice, or
                `decode.timeout` where it takes too long.
            RuntimeError: The decoder process does not start.
        """
        with self._lock:
            for _ in range(_ATTEMPTS):
                child = self._child = self._child or _Child(self._command, self._setup)
                try:
                    image = child.decode(encoded, crop_density)
                except TimeoutError as error:
                    self._drop_child()
                    raise self._timed_out(encoded) from error
                except (EOFError, BrokenPipeError):
                    ending = child.ending()
                    self._drop_child()
                else:
                    if image.pixels.nbytes > _KEPT_BYTES:
                        self._drop_child()
                    return image
        raise SampleError(
            "decode.crash",
            f"{len(encoded)} bytes that begin with {encoded[:16]!r} ended the decoder {_ATTEMPTS} "
            f"times ({ending}); the file is damaged, or decoding it takes more memory than there "
            "is",
        )

    def close(self) -> None:
        """End the child process."""
        with self._lock:
            self._drop_child()

    @property
    def pid(self) -> int | None:
        """Process id of the child, or None while there is none."""
        return None if self._child is None else self._child.pid

    def _timed_out(self, encoded: bytes) -> SampleError:
        return SampleError(
            "decode.timeout",
            f"{len(encoded)} bytes that begin with {encoded[:16]!r} took the decoder more than "
            f"{self._setup.timeout_s:g} s; raise decode.timeout_s if the image is sound",
        )

    def _drop_child(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


class _Child:
    """One running decoder process."""

    def __init__(self, command: Sequence[str], setup: Setup) -> None:
        self._timeout_s = setup.timeout_s
        self._command = shlex.join(command)
        self._memory = MemoryFile()
        descriptor = self._memory.descriptor
        self._process = start_process([*command, str(descriptor)], pass_fds=[descriptor])
        assert self._process.stdin is not None and self._process.stdout is not None
        self._requests = self._process.stdin.fileno()
        self._answers = self._process.stdout.fileno()
        self._shake_hands(setup)

    def _shake_hands(self, setup: Setup) -> None:
        try:
            send(self._requests, setup)
            if receive(self._answers, timeout_s=_START_TIMEOUT_S) == READY:
                return
            ending = "spoke out of turn"
        except (EOFError, BrokenPipeError):
            ending = self.ending()
        except TimeoutError:
            ending = f"was not ready after {_START_TIMEOUT_S:g} s"
        self.close()
        raise RuntimeError(f"the decoder process `{self._command}` does not start: {ending}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def decode(self, encoded: bytes, crop_density: float) -> DecodedImage:
        self._memory.write(encoded)
        send(self._requests, Request(len(encoded), crop_density))
        answer = receive(self._answers, timeout_s=self._timeout_s)
        if isinstance(answer, Decoded):
            return replace(answer.image, pixels=self._memory.read_array(answer.shape))
        raise SampleError(answer.reason, answer.message)

    def ending(self) -> str:
        """How the process ended, in words."""
        return ending(self._process)

    def close(self) -> None:
        end_process(self._process)
        self._memory.close()


def guarded_decoder(options: DecodeOptions, timeout_s: float) -> GuardedDecoder:
    """The decoder of this process for some options, made on first use and closed at exit."""
    with _decoders_lock:
        if not _decoders:
            atexit.register(_close_all)
        key = (options, timeout_s)
        if key not in _decoders:
            _decoders[key] = GuardedDecoder(options, timeout_s=timeout_s)
        return _decoders[key]


def _close_all() -> None:
    for decoder in _decoders.values():
        decoder.close()
    _decoders.clear()
