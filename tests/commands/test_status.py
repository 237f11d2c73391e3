"""`status` and `errors --traces` tell what the last runs did, from their journals alone."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sapiens_batch.cli import app
from sapiens_batch.protocol.journal import Segments, encode, in_flight_line, line, trace_id
from sapiens_batch.storage import open_store
from tests.labelset.built_job import SHARDS, write_job

FIRST, SECOND = "20260101T000000Z-00000001", "20260102T000000Z-00000002"
IN_FLIGHT = [(SHARDS[2].shard_id, 0, 1), (SHARDS[2].shard_id, 0, None)]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    write_job(open_store(str(tmp_path)))
    return tmp_path


def write(job: Path, run: str, *lines: dict[str, Any]) -> None:
    Segments(open_store(str(job)), run).write(encode(lines))


def call(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return done.output if "--json" in arguments else " ".join(done.output.split())


def started(now_s: float, **fields: Any) -> dict[str, Any]:
    return line(now_s, "started", **{"host": "node-7", "pid": 1, "partition": "1/1", **fields})


def test_a_job_that_never_ran_has_no_last_run(job: Path) -> None:
    assert "last run" not in call("status", str(job))
    assert json.loads(call("status", str(job), "--json"))["last_runs"] == []


def test_a_run_that_ended_says_how(job: Path) -> None:
    write(job, FIRST, started(0), line(9, "ended", exit_code=0))
    shown = call("status", str(job))
    assert "last run: 1970-01-01T00:00:00.000+00:00 on node-7: exit code 0" in shown
    write(job, SECOND, started(20), line(29, "ended", exit_code=5, why="stopped by SIGTERM"))
    assert "on node-7: exit code 5, stopped by SIGTERM" in call("status", str(job))


def test_a_run_that_died_says_what_it_was_doing(job: Path) -> None:
    progress = line(3, "progress", samples_per_s=2.5)
    write(job, FIRST, started(0, partition="2/4"), progress, in_flight_line(4, IN_FLIGHT))
    shown = call("status", str(job))
    assert "on node-7, part 2/4: died, no word since 1970-01-01T00:00:04" in shown
    assert "2.5 samples/s in flight: 2.tar, chunk 1 in flight: 2.tar, reading" in shown
    (found,) = json.loads(call("status", str(job), "--json"))["last_runs"]
    assert (found["standing"], found["exit_code"]) == ("died", None)
    assert found["in_flight"] == [["2.tar", 1], ["2.tar", None]]


def test_a_run_that_spoke_lately_is_at_work(job: Path) -> None:
    write(job, FIRST, started(time.time()))
    write(job, SECOND, started(time.time()), line(time.time(), "ended", exit_code=0))
    ended, running = json.loads(call("status", str(job), "--json"))["last_runs"]
    assert (ended["run"], ended["standing"]) == (SECOND, "ended")
    assert (running["run"], running["standing"]) == (FIRST, "running")


def test_a_process_of_this_machine_that_is_gone_is_no_run(job: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    host = socket.gethostname()
    write(job, FIRST, started(time.time(), host=host, pid=process.pid))
    assert "died, no word since" in call("status", str(job))
    write(job, SECOND, started(time.time(), host=host, pid=os.getpid()))
    assert "running, last word" in call("status", str(job))


def test_failures_are_shown_with_their_tracebacks(job: Path) -> None:
    trace = 'Traceback (most recent call last):\n  File "x.py", line 3, in label\nOSError: chunk 1'
    fields = {
        "stage": "label",
        "shard": SHARDS[2].shard_id,
        "chunk": 1,
        "trace_id": trace_id(trace),
    }
    write(
        job,
        FIRST,
        line(1, "failure", **fields, message="OSError: chunk 1", trace=trace),
        line(2, "failure", **fields, message="OSError: chunk \x1b[2J"),
    )
    shown = call("errors", str(job), "--traces")
    assert "decode.truncated" in shown
    assert "label failed 2 times, 1970-01-01T00:00:01.000+00:00 to 1970-01-01T00:00:02" in shown
    assert r"OSError: chunk \x1b[2J in 2.tar, chunk 1" in shown
    assert 'File "x.py", line 3, in label' in shown
    (found,) = json.loads(call("errors", str(job), "--traces", "--json"))["failures"]
    assert (found["num_failures"], found["trace"]) == (2, trace)
    assert "failures" not in json.loads(call("errors", str(job), "--json"))


def test_without_failures_there_are_no_tracebacks(job: Path) -> None:
    assert "no failures in the last runs" in call("errors", str(job), "--traces")
