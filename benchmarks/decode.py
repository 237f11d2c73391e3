"""Images per second and core: decode and prepare, against Pillow and the transformers processor.

`python benchmarks/decode.py [--photos FOLDER] [--rounds N]`. Both sides make the same model input
(stretched to 1024 x 768) from the same bytes, in turns, in one run; ours through the guarded
decoder process, and up to the row that leaves the stage. Core seconds include the decoder process.
"""

from __future__ import annotations

import argparse
import io
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image

from sapiens_batch.records import Array, Chunk, Sample, Status, ViewKind, ViewSpec
from sapiens_batch.samples.build import PHOTOS
from sapiens_batch.spec.job import DecodeSpec
from sapiens_batch.stages.prepare import ChunkPreparer

STRETCH = ViewSpec(ViewKind.STRETCH, 1024, 768)
LARGE_PIXELS = 12_000_000
_MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1) * 255
_STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1) * 255


def load_processor() -> tuple[str, Callable[[Image.Image], object]]:
    """The transformers processor, or the same calls without it where torchvision is missing."""
    try:
        from transformers.models.sapiens2.image_processing_sapiens2 import Sapiens2ImageProcessor
    except (ImportError, RuntimeError):
        return "torch calls of Sapiens2ImageProcessor (it needs torchvision)", equivalent
    processor = Sapiens2ImageProcessor()
    return "Sapiens2ImageProcessor", lambda image: processor(image, return_tensors="pt")


def equivalent(image: Image.Image) -> object:
    """What the processor does to one image, without its bookkeeping."""
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()[None]
    resized = torch.nn.functional.interpolate(
        pixels, (1024, 768), mode="bilinear", antialias=True, align_corners=False
    )
    return (resized.float() - _MEAN) / _STD


def prepare_all(encoded: Sequence[bytes], preparer: ChunkPreparer) -> None:
    """Our side: a chunk, as in a job."""
    samples = tuple(Sample(str(index), index, data) for index, data in enumerate(encoded))
    made = preparer.prepare(Chunk("ab" * 16, 0, 0, samples, last=True))
    assert all(row.status is Status.OK for row in made.samples)


def process_each(encoded: Sequence[bytes], processor: Callable[[Image.Image], object]) -> None:
    """The other side: what the documentation shows."""
    for data in encoded:
        processor(Image.open(io.BytesIO(data)).convert("RGB"))


def photos(folder: Path) -> list[Array]:
    """The JPEGs of a folder that the plain path can read, as BGR pixels."""
    read = [cv2.imread(str(path)) for path in sorted(folder.glob("*.jpg"))]
    return [image for image in read if image is not None]


def enlarged(image: Array, num_pixels: int) -> bytes:
    """A photo scaled to a number of pixels, as JPEG."""
    scale = (num_pixels / (image.shape[0] * image.shape[1])) ** 0.5
    size = round(image.shape[1] * scale), round(image.shape[0] * scale)
    large = cv2.resize(image, size, interpolation=cv2.INTER_CUBIC)
    return bytes(cv2.imencode(".jpg", large, [cv2.IMWRITE_JPEG_QUALITY, 90])[1])


def core_seconds() -> float:
    """CPU time of this process and of its running children."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = time.process_time()
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / ticks
    return total


def compare(
    name: str, encoded: Sequence[bytes], rounds: int, ours: Callable[[], None],
    theirs: Callable[[], None],
) -> None:  # fmt: skip
    """Run both in turns and print images per core second."""
    spent = {ours: 0.0, theirs: 0.0}
    for number in range(rounds + 1):
        for work in spent:
            started = core_seconds()
            work()
            if number > 0:  # the first round loads libraries and starts the decoder
                spent[work] += core_seconds() - started
    rate, other = (rounds * len(encoded) / seconds for seconds in spent.values())
    print(f"{name:32s} {rate:8.1f} {other:8.1f} {rate / other:6.2f}x")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path, default=PHOTOS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--large", type=int, default=4, help="photos to enlarge to 12 megapixels")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    label, processor = load_processor()
    images = photos(arguments.photos)
    as_they_are = [path.read_bytes() for path in sorted(arguments.photos.glob("*.jpg"))]
    medium = [enlarged(image, 1_700_000) for image in images[: arguments.large]]
    large = [enlarged(image, LARGE_PIXELS) for image in images[: arguments.large]]
    full = ChunkPreparer(None, [STRETCH])
    scaled = ChunkPreparer(None, [STRETCH], DecodeSpec(scaled=True))
    print(f"images per core second; the other side is Pillow + {label}")
    print(f"{'':32s} {'ours':>8s} {'other':>8s} {'ratio':>7s}")
    for name, encoded, preparer in (
        (f"{len(images)} photos as they are", as_they_are, full),
        ("1.7 megapixels", medium, full),
        ("12 megapixels", large, full),
        ("12 megapixels, decode.scaled", large, scaled),
    ):
        compare(
            name,
            encoded,
            arguments.rounds,
            lambda encoded=encoded, preparer=preparer: prepare_all(encoded, preparer),
            lambda encoded=encoded: process_each(encoded, processor),
        )


if __name__ == "__main__":
    main()
