"""How often the model hub is asked, with a stand-in on loopback that counts."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch

from sapiens_batch.errors import WeightsError
from sapiens_batch.models.weights import load_head, resolve_checkpoint
from tests.models.conftest import Save, Tensors

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
    listing = json.dumps(
        [{"type": "file", "path": name, "size": 1, "oid": "0"} for name in files]
    ).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            path = self.path.partition("?")[0]
            _, resolves, of_revision = path.partition("/resolve/")
            name = of_revision.partition("/")[2] or path
            if resolves:  # the client asks for other things than the repository
                asked[f"{self.command} {name}"] += 1
            content = listing if f"/api/models/{REPO}/tree/" in path else files.get(name)
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
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
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


def test_one_file_of_a_repository_comes_with_what_lies_beside_it(
    tmp_path: Path, weights: Path
) -> None:
    files = {
        "pose/seg.safetensors": weights.read_bytes(),
        "pose/config.json": b'{"rope_theta": 10.0}',
        "other.safetensors": b"another model",
        "config.json": b'{"rope_theta": 99.0}',
    }
    asked: Counter[str] = Counter()
    script = f"""
import dataclasses, torch
from sapiens_batch.models.weights import load_head, resolve_checkpoint

found = resolve_checkpoint("{REPO}", file="pose/seg.safetensors")
assert found.config.encoder.rope_theta == 10
assert found.revision == "{COMMIT}"
load_head(dataclasses.replace(found, path=None), device=torch.device("cpu"), dtype=torch.float32)
wrong = {{None: "say which with `file`", "pose/a.safetensors": "it has pose/seg.saf"}}
for file, message in wrong.items():
    try:
        resolve_checkpoint("{REPO}", file=file)
    except Exception as error:
        assert message in str(error), error
    else:
        raise AssertionError(file)
"""
    with serve_model(files, asked) as endpoint:
        run(script, tmp_path, endpoint, num_processes=1)
    assert asked["GET pose/seg.safetensors"] == 1
    assert asked["GET config.json"] == asked["GET other.safetensors"] == 0


def test_an_index_of_a_repository_brings_the_files_that_it_names(
    tmp_path: Path, tensors: Tensors, save: Save
) -> None:
    names = sorted(tensors)
    halves = {"model-1-of-2.safetensors": names[::2], "model-2-of-2.safetensors": names[1::2]}
    index = {"weight_map": {name: file for file, held in halves.items() for name in held}}
    files = {
        file: save({name: tensors[name] for name in held}, file).read_bytes()
        for file, held in halves.items()
    }
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    asked: Counter[str] = Counter()
    with serve_model(files, asked) as endpoint:
        run(RESOLVE_TWICE_AND_LOAD, tmp_path / "home", endpoint, num_processes=1)
    assert all(asked[f"GET {file}"] == 1 for file in files)


RELEASED_FILES = {
    "facebook/sapiens2-pose-0.8b": "sapiens2_0.8b_pose.safetensors",
    "facebook/sapiens2-seg-1b": "sapiens2_1b_seg.safetensors",
    "facebook/sapiens-seg-0.3b": "sapiens_0.3b_goliath_best_goliath_mIoU_7673_epoch_194.pth",
    "facebook/sapiens-pretrain-1b": "sapiens_1b_epoch_173_clean.pth",
    "facebook/sapiens-pose-1b-torchscript": "sapiens_1b_goliath_best_goliath_torchscript.pt2",
    "someone/converted": "pytorch_model.bin",
    "someone/tuned": "tuned.safetensors",
}


@pytest.mark.parametrize(("repo", "name"), RELEASED_FILES.items())
def test_a_file_kept_offline_is_found_under_any_released_name(
    repo: str, name: str, tmp_path: Path, references: Path, weights: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The cache as `hf download REPO FILE` leaves it."""
    cache = tmp_path / ("models--" + repo.replace("/", "--"))
    snapshot = cache / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(COMMIT)
    v1 = references / "original" / "sapiens1_seg" / "checkpoint.pth"
    (snapshot / name).symlink_to(weights if name.endswith(".safetensors") else v1)
    if not name.endswith(".safetensors"):
        (snapshot / "config.json").write_text('{"image_size": [64, 48], "num_attention_heads": 2}')
    if repo.startswith("someone/"):  # as an online run leaves it that looked for the usual name
        (cache / ".no_exist" / COMMIT).mkdir(parents=True)
        (cache / ".no_exist" / COMMIT / "model.safetensors").touch()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    found = resolve_checkpoint(repo)
    assert (found.path, found.revision) == (snapshot / name, COMMIT)
    assert found.config.is_v1 is not name.endswith(".safetensors")
    load_head(found, device=torch.device("cpu"), dtype=torch.float32)


def test_several_files_kept_offline_are_told_apart_by_file(
    tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "models--someone--many"
    folder = cache / "snapshots" / COMMIT / "pose"
    folder.mkdir(parents=True)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(COMMIT)
    for name in ("coco.safetensors", "wholebody.safetensors"):
        (folder / name).symlink_to(weights)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    found = resolve_checkpoint("someone/many", file="pose/coco.safetensors")
    assert (found.path, found.revision) == (folder / "coco.safetensors", COMMIT)
    with pytest.raises(WeightsError, match=r"pose/coco\.safetensors, pose/wholebody.*with `file`"):
        resolve_checkpoint("someone/many")
