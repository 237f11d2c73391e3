"""How often the model hub is asked, with a stand-in on loopback that counts."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = "someone/tiny-seg"
RESOLVE_TWICE_AND_LOAD = f"""
import torch
from sapiens_batch.models.weights import load_encoder, load_head, resolve_checkpoint

cpu = torch.device("cpu")
for checkpoint in (resolve_checkpoint("{REPO}"), resolve_checkpoint("{REPO}")):
    assert checkpoint.revision == "{COMMIT}"
    load_encoder(checkpoint, rope_dtype="float32", device=cpu, dtype=torch.float32)
    load_head(checkpoint, device=cpu, dtype=torch.float32)
"""
LOAD_WHAT_ANOTHER_NODE_RESOLVED = f"""
import dataclasses, pathlib, torch
from sapiens_batch.models.weights import load_encoder, load_head, resolve_checkpoint

resolved = resolve_checkpoint("{{weights}}")
elsewhere = dataclasses.replace(
    resolved, id="{REPO}", revision="{COMMIT}", path=pathlib.Path("/not/on/this/node")
)
cpu = torch.device("cpu")
load_encoder(elsewhere, rope_dtype="float32", device=cpu, dtype=torch.float32)
load_head(elsewhere, device=cpu, dtype=torch.float32)
"""


@contextlib.contextmanager
def serve_model(files: Mapping[str, bytes], asked: Counter[str]) -> Iterator[str]:
    """Serve the repository on loopback, counting requests by method and file."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            name = self.path.partition("?")[0].rpartition("/")[2]
            if "/resolve/" in self.path:  # the client asks for other things than the repository
                asked[f"{self.command} {name}"] += 1
            content = files.get(name)
            self.send_response(200 if content is not None else 404)
            self.send_header("X-Repo-Commit", COMMIT)
            if content is None:
                self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("ETag", f'"{hashlib.sha256(content or b"").hexdigest()}"')
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content or b"")

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def weights(references: Path) -> Path:
    """A tiny model in the original layout, which says all about itself."""
    return references / "original" / "sapiens2_seg" / "weights.safetensors"


def run(script: str, home: Path, endpoint: str, num_processes: int) -> None:
    """Run a script in processes of one node, all at once."""
    environment = os.environ | {
        "HF_HOME": str(home), "HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_OFFLINE": "0", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    started = [
        subprocess.Popen([sys.executable, "-c", script], env=environment, stderr=subprocess.PIPE)
        for _ in range(num_processes)
    ]
    for process in started:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()


def test_a_node_downloads_a_model_once_and_each_process_asks_for_it_once(
    tmp_path: Path, weights: Path
) -> None:
    asked: Counter[str] = Counter()
    load = LOAD_WHAT_ANOTHER_NODE_RESOLVED.format(weights=weights)
    with serve_model({"model.safetensors": weights.read_bytes()}, asked) as endpoint:
        run(RESOLVE_TWICE_AND_LOAD, tmp_path, endpoint, num_processes=2)
        assert asked["GET model.safetensors"] == 1
        assert asked["HEAD model.safetensors"] == 2
        asked.clear()
        # an actor is told the commit, and finds it in the node's cache
        run(load, tmp_path, endpoint, num_processes=1)
    assert not asked


def test_a_hub_that_cannot_be_reached_is_given_up_soon_and_quietly(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
        environment = os.environ | {
            "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0",
            "HF_ENDPOINT": f"http://127.0.0.1:{taken.getsockname()[1]}",
        }  # fmt: skip
        script = f"""
import time
from sapiens_batch.models.hub import locate

started = time.monotonic()
try:
    locate("{REPO}", None)
finally:
    print(time.monotonic() - started)
"""
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert f"WeightsError: checkpoint {REPO} is not in the local hub cache" in done.stderr
    assert "check the connection" in done.stderr
    assert "Retrying" not in done.stderr
    assert float(done.stdout) < 10
