"""Totals, estimates and the three ways of showing them."""

from __future__ import annotations

import io
import json

from rich.console import Console

from sapiens_batch.driver.progress import (
    JsonReporter,
    LogReporter,
    Progress,
    TerminalReporter,
    duration,
    progress_line,
)
from sapiens_batch.protocol.documents import Counts
from tests.protocol.documents import receipt


def half_done() -> Progress:
    progress = Progress(num_shards=4, planned_bytes=400)
    progress.counts = Counts(ok=15, empty=3, quarantined=2, persons=20)
    progress.known_samples, progress.committed_bytes, progress.committed_shards = 20, 200, 2
    progress.new_samples = 20
    progress.started_s -= 10
    return progress


def test_the_total_is_estimated_from_samples_per_byte() -> None:
    assert half_done().estimated_samples == 40


def test_nothing_is_estimated_before_the_first_shard() -> None:
    progress = Progress(num_shards=4, planned_bytes=400)
    assert progress.estimated_samples is None
    assert progress.left_s is None


def test_time_left_follows_from_rate_and_estimate() -> None:
    progress = half_done()
    assert progress.left_s is not None
    assert abs(progress.left_s - 10) < 0.5


def test_a_finished_job_knows_its_total() -> None:
    progress = half_done()
    progress.committed_shards = 4
    progress.known_samples = 33
    assert progress.estimated_samples == 33


def test_the_line_accounts_for_every_sample() -> None:
    line = progress_line(half_done())
    for part in ("20/40 samples", "ok 15", "empty 3", "quarantined 2", "shards 2/4", "left 0:"):
        assert part in line


def test_json_lines_are_one_object_each() -> None:
    stream = io.StringIO()
    reporter = JsonReporter(stream)
    reporter.message("hello")
    reporter.update(half_done())
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert events[0] == {"event": "message", "text": "hello"}
    assert events[1]["ok"] == 15
    assert events[1]["estimated_samples"] == 40


def test_a_log_gets_few_lines() -> None:
    stream = io.StringIO()
    reporter = LogReporter(stream, interval_s=60)
    for _ in range(5):
        reporter.update(half_done())
    assert len(stream.getvalue().splitlines()) == 1


def test_messages_cannot_work_a_terminal() -> None:
    log, terminal = io.StringIO(), io.StringIO()
    reporters = [LogReporter(log), TerminalReporter(Console(file=terminal))]
    for reporter in reporters:
        reporter.message("read failed: \x1b[2J [red]key[/]\nsecond line")
        reporter.close()
    for stream in (log, terminal):
        assert "read failed: \\x1b[2J [red]key[/]\nsecond line\n" in stream.getvalue()


def test_the_time_of_each_stage_adds_up() -> None:
    progress = Progress(num_shards=1, planned_bytes=1)
    for chunk in range(2):
        made = receipt(chunk, 4 * chunk, 4 * chunk + 4).model_copy(
            update={"timings_s": {"read": 0.5, "label": 2.0}}
        )
        progress.chunk_done(made, 4, counted=True)
    assert progress.as_dict()["stages_s"] == {"read": 1.0, "label": 4.0}


def test_durations_are_readable() -> None:
    assert (duration(59), duration(61), duration(3723)) == ("0:59", "1:01", "1:02:03")
