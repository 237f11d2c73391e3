"""What a person sees who got something wrong: one screen, a reason, the right exit code."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml

from sapiens_batch.cli import main
from sapiens_batch.samples import build

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Call the command's entry point as the shell does; exit code and all it printed."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)

    def call(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["sapiens-batch", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return int(ended.value.code or 0), out + err

    return call


@pytest.fixture
def run(tmp_path: Path, command: Callable[..., tuple[int, str]]) -> Run:
    """Run a job file with changed sections; exit code and all it printed."""

    def run_with(*arguments: str, **changes: Any) -> tuple[int, str]:
        spec = {
            "name": "refused",
            "source": {"format": "webdataset", "uri": str(build.SHARD), "boxes": "boxes"},
            "tasks": {"seg": {"checkpoint": "demo"}},
            "output": {"uri": str(tmp_path / "labels")},
        } | changes
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump(spec))
        return command("run", str(path), *arguments)

    return run_with


def assert_refused(outcome: tuple[int, str], exit_code: int, *expected: str) -> None:
    code, text = outcome
    assert code == exit_code
    assert "Traceback" not in text
    assert len(text.splitlines()) <= 24
    flat = " ".join(text.split())
    for part in expected:
        assert part in flat


def test_a_typo_names_the_field_and_the_likely_one(run: Run) -> None:
    outcome = run(source={"format": "webdataset", "uri": "x.tar", "boxs": "boxes"})
    assert_refused(outcome, 2, "source.boxs: no such field", "did you mean `boxes`")


def test_a_missing_input_names_the_address(run: Run, tmp_path: Path) -> None:
    outcome = run(source={"format": "webdataset", "uri": f"{tmp_path}/nothing-{{0..3}}.tar"})
    assert_refused(outcome, 2, "nothing-")


def test_an_unwritable_output_names_the_folder(run: Run, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert_refused(run(output={"uri": str(blocked / "labels")}), 2, str(blocked))


def test_a_corrupt_checkpoint_names_the_file(run: Run, tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{broken}")
    outcome = run(tasks={"seg": {"checkpoint": str(weights)}})
    assert_refused(outcome, 2, "model.safetensors", "cannot be read")


def test_released_weights_need_their_licence_accepted(run: Run) -> None:
    outcome = run(tasks={"seg": {"checkpoint": "facebook/sapiens2-seg-0.4b"}})
    assert_refused(outcome, 2, "Sapiens2 License", "surveillance", "accept_licences: [sapiens2]")


def test_a_checkpoint_that_is_nowhere_says_what_to_do(run: Run) -> None:
    outcome = run(
        tasks={"seg": {"checkpoint": "facebook/sapiens2-seg-0.4b"}}, accept_licences=["sapiens2"]
    )
    assert_refused(outcome, 2, "facebook/sapiens2-seg-0.4b", "HF_HUB_OFFLINE")


def test_a_missing_image_column_names_the_columns_that_exist(run: Run, tmp_path: Path) -> None:
    pq.write_table(pa.table({"picture": [b"x"], "id": ["a"]}), tmp_path / "in.parquet")
    source = {"format": "parquet", "uri": str(tmp_path / "in.parquet"), "image": ["image"]}
    assert_refused(run(source=source), 2, "image", "picture", "id")


def test_arrays_with_too_many_rows_for_persons_are_refused_before_anything_starts(run: Run) -> None:
    outcome = run(
        tasks={"seg": {"checkpoint": "demo", "region": "person"}},
        persons={"from": "source", "max_persons": 200_000},
    )
    assert_refused(outcome, 2, "tasks.seg", "persons.max_persons 200000", "output.chunk_samples")


def test_a_missing_job_file_is_named(command: Callable[..., tuple[int, str]]) -> None:
    assert_refused(command("run", "absent.yaml"), 2, "absent.yaml")


def test_persons_that_nobody_points_out_are_refused(run: Run) -> None:
    source = {"format": "webdataset", "uri": str(build.SHARD)}
    outcome = run(source=source, tasks={"pose": {"checkpoint": "demo"}})
    assert_refused(outcome, 2, "tasks.pose", "source.boxes", "detector", "whole_image")
    outcome = run(source=source, persons={"from": "source"})
    assert_refused(outcome, 2, "persons", "source.boxes")


def test_a_device_that_does_not_exist_is_refused_before_anything_starts(run: Run) -> None:
    outcome = run(runtime={"device": "gpu"})
    assert_refused(outcome, 2, "runtime.device", "gpu", "cuda:N")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.usefixtures("ray_cluster")
def test_a_gpu_that_this_machine_lacks_is_refused_and_not_waited_for(run: Run) -> None:
    code, text = run(runtime={"device": "cuda"})
    assert code == 2
    assert "runtime.device: cuda, but Ray finds no GPU on this machine" in text
    assert "run the same command again" not in text
    assert "attempt 1" not in text


def test_a_cluster_that_does_not_answer_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"  # bound, but nobody listens
        script = (
            "from sapiens_batch.spec.job import RuntimeSpec\n"
            "from sapiens_batch.driver.session import ray_session\n"
            f"with ray_session(RuntimeSpec(ray_address={address!r})): pass\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
        )
    assert "SpecError" in done.stderr
    assert address in done.stderr
    assert "ray status" in done.stderr


@pytest.mark.usefixtures("ray_cluster")
def test_input_that_is_unreadable_throughout_is_no_success(run: Run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.tar").write_text("this is no tar")
    source = {"format": "webdataset", "uri": str(tmp_path / "*.tar")}
    code, text = run(source=source)
    assert code == 4
    assert text.count("source.not_a_tar") >= 2
    assert "nothing left to do" not in text
    assert "not one sample could be labeled" in text


@pytest.mark.usefixtures("ray_cluster")
def test_plan_says_what_is_left_and_what_changed(
    run: Run, command: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    path = str(tmp_path / "job.yaml")
    assert run()[0] == 0
    code, text = command("plan", path)
    assert code == 0
    assert "1 committed, nothing left to do" in text
    assert_refused(command("plan", path, "--set", "tasks.seg.flip_test=true"), 3, "flip_test")
    code, text = command("plan", path, "--set", f"output.uri={tmp_path / 'new'}")
    assert code == 0
    assert "all to be labeled" in text
