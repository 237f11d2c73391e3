"""Start S3 servers on loopback for tests: SeaweedFS, and moto's server as a second implementation.

Both run as child processes on free ports and are stopped by the fixture that started them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KEY, SECRET, REGION, BUCKET = "testkey", "testsecret", "us-east-1", "jobs"
START_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server with one bucket.

    Attributes:
        endpoint: Its address.
        bucket: Name of the bucket.
    """

    endpoint: str
    bucket: str = BUCKET

    @property
    def options(self) -> dict[str, Any]:
        """Fsspec storage options."""
        return {
            "endpoint_url": self.endpoint,
            "key": KEY,
            "secret": SECRET,
            "client_kwargs": {"region_name": REGION},
        }

    def uri(self, folder: str) -> str:
        """The address of a folder in the bucket."""
        return f"s3://{self.bucket}/{folder}"

    def through(self, endpoint: str) -> S3Server:
        """The same server behind another address."""
        return S3Server(endpoint, self.bucket)


def weed_binary() -> str | None:
    """The SeaweedFS binary of this environment, or None."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


@contextlib.contextmanager
def seaweedfs(binary: str, folder: Path) -> Iterator[S3Server]:
    """SeaweedFS with its data in a folder, telemetry off, bound to loopback only."""
    with mortal_seaweedfs(binary, folder) as (server, _):
        yield server


@contextlib.contextmanager
def mortal_seaweedfs(
    binary: str, folder: Path
) -> Iterator[tuple[S3Server, Callable[[float], None]]]:
    """The same, with a function that kills it and starts it again after so many seconds."""
    identity = {
        "name": "test",
        "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "List", "Tagging", "Write"],
    }
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}))
    data = folder / "data"
    data.mkdir()
    master, volume, filer, s3 = free_ports(4)
    command = [
        binary, "-logtostderr=true", "server", f"-dir={data}",
        "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false",
        f"-master.port={master}", f"-volume.port={volume}", "-volume.max=50",
        "-master.volumeSizeLimitMB=64", "-filer", f"-filer.port={filer}",
        "-s3", f"-s3.port={s3}", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={config}",
    ]  # fmt: skip
    with contextlib.ExitStack() as running:
        running.enter_context(_process(command, folder))

        def die(for_s: float) -> None:
            running.close()
            time.sleep(for_s)
            running.enter_context(_process(command, folder))

        yield _ready(f"http://127.0.0.1:{s3}", folder), die


@contextlib.contextmanager
def moto(folder: Path) -> Iterator[S3Server]:
    """Moto's server, in its own process."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _process(command, folder):
        yield _ready(f"http://127.0.0.1:{port}", folder)


def free_ports(number: int) -> list[int]:
    """Free ports whose neighbours 10,000 above are free too: SeaweedFS opens both."""
    found: list[int] = []
    for port in range(12_000 + os.getpid() * 7 % 9_000, 32_000):
        if len(found) == number:
            break
        if _is_free(port) and _is_free(port + 10_000):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@contextlib.contextmanager
def _process(command: list[str], folder: Path) -> Iterator[None]:
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=folder, start_new_session=True
        )
    try:
        yield
    finally:
        # nothing in it is worth the ten seconds of an orderly end
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _ready(endpoint: str, folder: Path) -> S3Server:
    """Wait until a bucket can be made and written."""
    import fsspec

    server = S3Server(endpoint)
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            with contextlib.suppress(urllib.error.HTTPError):
                urllib.request.urlopen(endpoint, timeout=5).close()
            system = fsspec.filesystem("s3", skip_instance_cache=True, **server.options)
            system.call_s3("create_bucket", Bucket=server.bucket)
            system.pipe_file(f"{server.bucket}/ready", b"1")
            system.rm_file(f"{server.bucket}/ready")
        except (OSError, urllib.error.URLError) as error:
            if time.monotonic() > deadline:
                log = (folder / "server.log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{endpoint} did not start: {error}\n{log}") from error
            time.sleep(0.2)
        else:
            return server
