"""Decoding in a child process: the same pixels, and no image that ends or stalls the parent."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sapiens_batch.child.memory import MemoryFile
from sapiens_batch.images import guard
from sapiens_batch.images.decode import decode
from sapiens_batch.images.decoded import DecodedImage, DecodeOptions
from sapiens_batch.images.guard import GuardedDecoder, guarded_decoder
from sapiens_batch.images.reduction import NEVER
from sapiens_batch.records import Problem
from sapiens_batch.samples.build import PHOTOS
from tests.images.faulty_decoder import faulty

CAT = (PHOTOS / "cat.jpg").read_bytes()
PORTRAITS = (PHOTOS / "portraits.jpg").read_bytes()


@pytest.fixture(scope="module")
def decoder() -> Iterator[GuardedDecoder]:
    decoder = GuardedDecoder(DecodeOptions(), timeout_s=30, decoder=faulty)
    yield decoder
    decoder.close()


def kept(image: DecodedImage | Problem) -> DecodedImage | Problem:
    """What is left of an image when the decoder uses its memory again."""
    if isinstance(image, DecodedImage):
        return replace(image, pixels=image.pixels.copy())
    return image


def decoded(
    decoder: GuardedDecoder, *encoded: bytes, together: int | None = None
) -> list[DecodedImage | Problem]:
    density = [NEVER] * len(encoded)
    groups = decoder.decode_many(encoded, density, together=together)
    return [kept(image) for group in groups for image in group]


def assert_are(found: Sequence[DecodedImage | Problem], expected: Sequence[bytes | str]) -> None:
    """Each is what the image file decodes to, or is refused for the reason."""
    assert len(found) == len(expected)
    for image, wanted in zip(found, expected, strict=True):
        if isinstance(wanted, str):
            assert isinstance(image, Problem), wanted
            assert image.reason == wanted
        else:
            plain = decode(wanted)
            assert isinstance(image, DecodedImage), image
            np.testing.assert_array_equal(image.pixels, plain.pixels)
            empty = np.empty(0)
            assert replace(image, pixels=empty) == replace(plain, pixels=empty)


def test_images_come_out_as_they_do_without_the_guard() -> None:
    decoder = guarded_decoder(DecodeOptions(), 30.0)
    encoded = [path.read_bytes() for path in sorted(PHOTOS.glob("*.jpg"))]
    assert_are(decoded(decoder, *encoded), encoded)
    assert guarded_decoder(DecodeOptions(), 30.0) is decoder


def test_all_pixels_of_a_group_are_there_at_a_time(decoder: GuardedDecoder) -> None:
    (group,) = decoder.decode_many([CAT, PORTRAITS, CAT], [NEVER] * 3, together=3)
    assert_are(group, [CAT, PORTRAITS, CAT])


def test_a_group_ends_where_its_pixels_are_enough(
    decoder: GuardedDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_GROUP_PIXELS_BYTES", decode(CAT).pixels.nbytes + 1)
    groups = decoder.decode_many([CAT] * 5, [NEVER] * 5)
    assert [len(group) for group in groups] == [2, 2, 1]


def test_a_group_ends_where_its_files_are_enough(
    decoder: GuardedDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_GROUP_ENCODED_BYTES", len(CAT) + 1)
    groups = decoder.decode_many([CAT] * 5, [NEVER] * 5)
    assert [len(group) for group in groups] == [2, 2, 1]


def test_refusals_keep_their_reason_and_cost_the_others_nothing(decoder: GuardedDecoder) -> None:
    found = decoded(decoder, b"<html>", CAT, b"", PORTRAITS)
    assert_are(found, ["decode.unknown_format", CAT, "decode.empty", PORTRAITS])


@pytest.mark.parametrize(
    ("fault", "ending", "together"),
    [(b"SEGFAULT", "SIGSEGV", None), (b"EXIT", "status 7", 1), (b"SEGFAULT", "SIGSEGV", 3)],
)
def test_a_crash_costs_the_image_that_caused_it_and_no_other(
    decoder: GuardedDecoder, fault: bytes, ending: str, together: int | None
) -> None:
    found = decoded(decoder, CAT, fault, fault, PORTRAITS, fault, together=together)
    assert_are(found, [CAT, "decode.crash", "decode.crash", PORTRAITS, "decode.crash"])
    assert ending in str(found[1])


def test_a_crash_that_does_not_repeat_costs_nothing(
    decoder: GuardedDecoder, tmp_path: Path
) -> None:
    marker = tmp_path / "crashed"
    shutil.copy(PHOTOS / "cat.jpg", marker.with_suffix(".jpg"))
    found = decoded(decoder, PORTRAITS, b"CRASH ONCE " + os.fsencode(marker), PORTRAITS)
    assert_are(found, [PORTRAITS, CAT, PORTRAITS])
    assert marker.exists()


def test_a_decoder_that_was_killed_while_idle_is_replaced(decoder: GuardedDecoder) -> None:
    assert_are(decoded(decoder, CAT), [CAT])
    assert decoder.pid is not None
    os.kill(decoder.pid, 9)
    assert_are(decoded(decoder, CAT, PORTRAITS), [CAT, PORTRAITS])


def test_a_hang_ends_after_the_timeout_and_costs_no_other_image() -> None:
    decoder = GuardedDecoder(DecodeOptions(), timeout_s=0.5, decoder=faulty)
    started = time.monotonic()
    found = decoded(decoder, CAT, b"HANG", PORTRAITS)
    assert_are(found, [CAT, "decode.timeout", PORTRAITS])
    assert "0.5 s" in str(found[1])
    assert time.monotonic() - started < 20
    decoder.close()


def test_each_image_of_a_group_has_its_own_time() -> None:
    decoder = GuardedDecoder(DecodeOptions(), timeout_s=1.5, decoder=faulty)
    found = decoded(decoder, *[b"SLOW " + CAT] * 6)
    assert_are(found, [CAT] * 6)
    decoder.close()


def test_what_libraries_print_does_not_get_between_the_answers(decoder: GuardedDecoder) -> None:
    assert_are(decoded(decoder, b"PRINT " + CAT, PORTRAITS), [CAT, PORTRAITS])


class Unloadable:
    """Ends the process in which it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return os._exit, (3,)

    def __call__(self, encoded: bytes, *, options: DecodeOptions, crop_density: float) -> None:
        raise NotImplementedError


def test_a_decoder_that_does_not_start_is_no_fault_of_the_image() -> None:
    decoder = GuardedDecoder(DecodeOptions(), decoder=Unloadable())  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="exit status 3"):
        decoded(decoder, CAT)


def test_threads_do_not_share_a_decoder() -> None:
    mine, others = guarded_decoder(DecodeOptions(), 30.0), []
    thread = threading.Thread(target=lambda: others.append(guarded_decoder(DecodeOptions(), 30.0)))
    thread.start()
    thread.join()
    assert others[0] is not mine


def test_the_memory_of_a_huge_image_is_given_back(
    monkeypatch: pytest.MonkeyPatch, decoder: GuardedDecoder
) -> None:
    held: list[int] = []

    class Watched(MemoryFile):
        def trim(self, kept_bytes: int) -> None:
            super().trim(kept_bytes)
            held.append(os.fstat(self.descriptor).st_blocks * 512)

    monkeypatch.setattr(guard, "MemoryFile", Watched)
    buffer = io.BytesIO()
    Image.new("L", (10_000, 10_000)).save(buffer, "JPEG")
    decoder = GuardedDecoder(DecodeOptions())
    found = decoder.decode_many([buffer.getvalue(), CAT, CAT], [NEVER] * 3)
    assert [len(group) for group in found] == [1, 2]
    decoder.close()
    assert held == [0, 0]


def test_the_decoder_ends_with_its_parent_however_that_ends() -> None:
    script = (
        "import os\n"
        "from pathlib import Path\n"
        "from sapiens_batch.images.decoded import DecodeOptions\n"
        "from sapiens_batch.images.guard import guarded_decoder\n"
        "decoder = guarded_decoder(DecodeOptions(), 30.0)\n"
        f"list(decoder.decode_many([Path({str(PHOTOS / 'cat.jpg')!r}).read_bytes()], [0.0]))\n"
        "print(decoder.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=False)
    child = int(ended.stdout)
    deadline = time.monotonic() + 10
    while _is_running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_running(child)


def _is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"
