"""Decoding in a child process: the same pixels, and no image that ends or stalls the parent."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sapiens_batch.errors import SampleError
from sapiens_batch.images.decode import decode
from sapiens_batch.images.decoded import DecodeOptions
from sapiens_batch.images.guard import GuardedDecoder, guarded_decoder
from sapiens_batch.samples.build import PHOTOS

CAT = PHOTOS / "cat.jpg"
FAULTY = [sys.executable, str(Path(__file__).with_name("faulty_decode_process.py"))]


@pytest.fixture(scope="module")
def decoder() -> Iterator[GuardedDecoder]:
    decoder = GuardedDecoder(DecodeOptions(), timeout_s=30, command=FAULTY)
    yield decoder
    decoder.close()


def assert_decodes_the_cat(decoder: GuardedDecoder) -> None:
    found = decoder.decode(CAT.read_bytes())
    np.testing.assert_array_equal(found.pixels, decode(CAT.read_bytes()).pixels)


def test_images_come_out_as_they_do_without_the_guard() -> None:
    decoder = guarded_decoder(DecodeOptions(), 30.0)
    for path in sorted(PHOTOS.glob("*.jpg")):
        plain, guarded = decode(path.read_bytes()), decoder.decode(path.read_bytes())
        np.testing.assert_array_equal(guarded.pixels, plain.pixels)
        assert (guarded.size, guarded.decoder, guarded.orientation) == (
            plain.size,
            plain.decoder,
            plain.orientation,
        )
    assert guarded_decoder(DecodeOptions(), 30.0) is decoder


def test_an_image_of_earlier_calls_is_not_overwritten(decoder: GuardedDecoder) -> None:
    first = decoder.decode(CAT.read_bytes()).pixels
    before = first.copy()
    decoder.decode((PHOTOS / "portraits.jpg").read_bytes())
    np.testing.assert_array_equal(first, before)


def test_refusals_keep_their_reason(decoder: GuardedDecoder) -> None:
    with pytest.raises(SampleError) as caught:
        decoder.decode(b"<html>")
    assert caught.value.reason == "decode.unknown_format"


@pytest.mark.parametrize(("fault", "ending"), [(b"SEGFAULT", "SIGSEGV"), (b"EXIT", "status 7")])
def test_a_crash_costs_the_image_that_caused_it_and_no_other(
    decoder: GuardedDecoder, fault: bytes, ending: str
) -> None:
    with pytest.raises(SampleError, match=ending) as caught:
        decoder.decode(fault)
    assert caught.value.reason == "decode.crash"
    assert_decodes_the_cat(decoder)


def test_a_crash_that_does_not_repeat_costs_nothing(
    decoder: GuardedDecoder, tmp_path: Path
) -> None:
    marker = tmp_path / "crashed"
    shutil.copy(CAT, marker.with_suffix(".jpg"))
    found = decoder.decode(b"CRASH ONCE " + os.fsencode(marker))
    np.testing.assert_array_equal(found.pixels, decode(CAT.read_bytes()).pixels)
    assert marker.exists()


def test_a_decoder_that_was_killed_while_idle_is_replaced(decoder: GuardedDecoder) -> None:
    assert_decodes_the_cat(decoder)
    assert decoder.pid is not None
    os.kill(decoder.pid, 9)
    assert_decodes_the_cat(decoder)


def test_a_hang_ends_after_the_timeout() -> None:
    decoder = GuardedDecoder(DecodeOptions(), timeout_s=0.5, command=FAULTY)
    started = time.monotonic()
    with pytest.raises(SampleError, match=r"0\.5 s") as caught:
        decoder.decode(b"HANG")
    assert caught.value.reason == "decode.timeout"
    assert time.monotonic() - started < 20
    decoder.close()


def test_what_libraries_print_does_not_get_between_the_answers(decoder: GuardedDecoder) -> None:
    found = decoder.decode(b"PRINT " + CAT.read_bytes())
    np.testing.assert_array_equal(found.pixels, decode(CAT.read_bytes()).pixels)


def test_a_decoder_that_does_not_start_is_no_fault_of_the_image() -> None:
    decoder = GuardedDecoder(DecodeOptions(), command=[sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(RuntimeError, match="exit status 3"):
        decoder.decode(CAT.read_bytes())


def test_the_decoder_ends_with_its_parent_however_that_ends() -> None:
    script = (
        "import os\n"
        "from pathlib import Path\n"
        "from sapiens_batch.images.decoded import DecodeOptions\n"
        "from sapiens_batch.images.guard import guarded_decoder\n"
        "decoder = guarded_decoder(DecodeOptions(), 30.0)\n"
        f"decoder.decode(Path({str(CAT)!r}).read_bytes())\n"
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
