"""Resident memory while 5,000 images are prepared, 5 % of them damaged.

`python benchmarks/memory.py [--images N]`. Prints the memory of this process and of its decoder
after every tenth of the images: it must not grow after the first.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np

from sapiens_batch.persons import make_person_finder
from sapiens_batch.records import Chunk, Sample, ViewKind, ViewSpec
from sapiens_batch.samples.build import PHOTOS
from sapiens_batch.spec.job import PersonsSpec
from sapiens_batch.stages.prepare import ChunkPreparer

SPECS = [ViewSpec(ViewKind.STRETCH, 256, 192), ViewSpec(ViewKind.CROP, 256, 192)]
CHUNK_SAMPLES = 32
DAMAGED_EVERY = 20


def samples(count: int) -> Iterator[Sample]:
    """Photos of changing size; every twentieth is cut short, bit-rotten, or no image."""
    random = np.random.default_rng(0)
    sources = [cv2.imread(str(path)) for path in sorted(PHOTOS.glob("*.jpg"))]
    pool = [
        bytes(cv2.imencode(".jpg", cv2.resize(image, None, fx=scale, fy=scale))[1])
        for image in sources
        for scale in (0.3, 0.7, 1.0, 2.1)
    ]
    boxes = np.array([[10, 10, 60, 90], [0, 0, 0, 5]], np.float32)
    for index in range(count):
        encoded = bytearray(pool[random.integers(len(pool))])
        if index % DAMAGED_EVERY == 0:
            encoded = _damaged(encoded, random, index // DAMAGED_EVERY % 3)
        yield Sample(str(index), index, bytes(encoded), boxes)


def _damaged(encoded: bytearray, random: np.random.Generator, kind: int) -> bytearray:
    if kind == 0:
        return encoded[: int(random.integers(len(encoded)))]
    if kind == 1:
        for position in random.integers(2, len(encoded), 50):
            encoded[position] ^= 255
        return encoded
    return bytearray(b"<html>503</html>")


def resident_mb(pid: int) -> int:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20


def main() -> None:
    """Print the course of memory and what became of the images."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=5000)
    count = parser.parse_args().images
    preparer = ChunkPreparer(make_person_finder(PersonsSpec()), SPECS)
    outcomes: Counter[str] = Counter()
    chunk: list[Sample] = []
    shown = 0
    for sample in samples(count):
        chunk.append(sample)
        if len(chunk) == CHUNK_SAMPLES or sample.index == count - 1:
            made = preparer.prepare(Chunk("ab" * 16, 0, 0, tuple(chunk), last=False))
            outcomes.update(
                row.problem.reason if row.problem else row.status for row in made.samples
            )
            chunk = []
        if (sample.index + 1) * 10 // count > shown and not chunk:
            shown = (sample.index + 1) * 10 // count
            children = Path("/proc/self/task").glob("*/children")
            pids = [int(pid) for listed in children for pid in listed.read_text().split()]
            decoder = sum(resident_mb(pid) for pid in pids)
            print(
                f"{sample.index + 1:6d} images: {resident_mb(os.getpid())} MB, decoder {decoder} MB"
            )
    print(dict(outcomes))


if __name__ == "__main__":
    main()
