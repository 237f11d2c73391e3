"""What a person sees while a job runs: a live line on a terminal, plain lines in a log, or JSON.

The numbers come from receipts and commits alone. How they are shown never changes what is done.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sapiens_batch.printable import printable
from sapiens_batch.protocol.documents import Counts
from sapiens_batch.protocol.receipt import Receipt

LOG_INTERVAL_S = 10.0


@dataclass(slots=True)
class Progress:
    """Running totals of a job; `resumed` counts what earlier runs had done.

    Attributes:
        num_shards: Shards in the plan.
        planned_bytes: Their size.
        committed_shards: Shards that are visible.
        committed_bytes: Size of the shards whose sample count is known.
        known_samples: Samples of the shards in `committed_bytes`.
        counts: Samples by status, and persons.
        new_samples: Samples labeled by this run, for the rate.
        failures: Chunk attempts that failed in this run.
        stages_s: Seconds that workers of this run took, by stage.
    """

    num_shards: int
    planned_bytes: int
    committed_shards: int = 0
    committed_bytes: int = 0
    known_samples: int = 0
    counts: Counts = field(default_factory=Counts)
    new_samples: int = 0
    failures: int = 0
    stages_s: dict[str, float] = field(default_factory=dict)
    started_s: float = field(default_factory=time.monotonic)
    first_done_s: float | None = None

    def chunk_done(self, receipt: Receipt, num_labeled: int, *, counted: bool) -> None:
        """Count a chunk that this run has labeled.

        Args:
            receipt: Its receipt.
            num_labeled: How many of its samples were labeled.
            counted: Whether its samples are new in the totals.
        """
        if counted:
            self.counts = self.counts + receipt.counts
        self.new_samples += num_labeled
        for stage, seconds in receipt.timings_s.items():
            self.stages_s[stage] = self.stages_s.get(stage, 0.0) + seconds
        if self.first_done_s is None:
            self.first_done_s = time.monotonic()

    def shard_done(self, size_bytes: int, counts: Counts, *, counted: Counts | None = None) -> None:
        """Count a shard that became visible.

        Args:
            size_bytes: Its size.
            counts: Its samples by status.
            counted: What `chunk_done` has counted of it.
        """
        self.committed_shards += 1
        self.committed_bytes += size_bytes
        self.known_samples += counts.samples
        self.shard_replaced(counted or Counts(), counts)

    def shard_replaced(self, before: Counts, after: Counts) -> None:
        """Count a shard anew whose samples were counted before."""
        self.counts = Counts(
            **{
                name: value - getattr(before, name) + getattr(after, name)
                for name, value in self.counts.model_dump().items()
            }
        )

    @property
    def elapsed_s(self) -> float:
        """Seconds since this run began."""
        return time.monotonic() - self.started_s

    @property
    def rate(self) -> float:
        """Samples per second of this run."""
        return self.new_samples / max(self.elapsed_s, 1e-9)

    @property
    def estimated_samples(self) -> int | None:
        """Samples of the whole job, from bytes per sample so far; None before a shard."""
        if self.committed_shards >= self.num_shards:
            return self.known_samples
        if self.committed_bytes == 0:
            return None
        estimate = round(self.known_samples * self.planned_bytes / self.committed_bytes)
        return max(estimate, self.counts.samples)

    @property
    def left_s(self) -> float | None:
        """Seconds to go at the present rate, or None while that is unknown."""
        total = self.estimated_samples
        if total is None or self.new_samples == 0:
            return None
        return (total - self.counts.samples) / self.rate

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "shards": self.num_shards,
            "committed_shards": self.committed_shards,
            **self.counts.model_dump(),
            "samples": self.counts.samples,
            "estimated_samples": self.estimated_samples,
            "samples_per_s": round(self.rate, 3),
            "left_s": None if self.left_s is None else round(self.left_s, 1),
            "failures": self.failures,
            "stages_s": {name: round(seconds, 1) for name, seconds in self.stages_s.items()},
        }


class Reporter(Protocol):
    """Where progress goes."""

    def message(self, text: str) -> None:
        """Say something that stays."""
        ...

    def update(self, progress: Progress) -> None:
        """Show new totals; called after every chunk."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was."""
        ...


def progress_line(progress: Progress) -> str:
    """The totals in one line."""
    counts, total = progress.counts, progress.estimated_samples
    parts = [
        f"{counts.samples}{'' if total is None else f'/{total}'} samples",
        f"{progress.rate:.2f} samples/s",
        f"ok {counts.ok}",
        f"empty {counts.empty}",
        f"quarantined {counts.quarantined}",
        f"persons {counts.persons}",
        f"shards {progress.committed_shards}/{progress.num_shards}",
    ]
    if progress.failures:
        parts.append(f"failed attempts {progress.failures}")
    if progress.left_s is not None:
        parts.append(f"left {duration(progress.left_s)}")
    return "  ".join(parts)


def duration(seconds: float) -> str:
    """Seconds as `h:mm:ss` or `m:ss`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class TerminalReporter:
    """A bar and the totals, redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._live.start()

    def message(self, text: str) -> None:
        """Print above the bar."""
        self._console.print(printable(text, lines=True), highlight=False, markup=False)

    def update(self, progress: Progress) -> None:
        """Redraw."""
        total = progress.estimated_samples
        bar = ProgressBar(total=total, completed=progress.counts.samples, width=30)
        grid = Table.grid(padding=(0, 2))
        grid.add_row(bar, Text(progress_line(progress)))
        self._live.update(grid)

    def close(self) -> None:
        """Remove the bar."""
        self._live.stop()


class LogReporter:
    """One plain line every few seconds."""

    def __init__(self, stream: TextIO = sys.stdout, interval_s: float = LOG_INTERVAL_S) -> None:
        self._stream = stream
        self._interval_s = interval_s
        self._last_s = float("-inf")

    def message(self, text: str) -> None:
        """Print a line."""
        print(printable(text, lines=True), file=self._stream, flush=True)

    def update(self, progress: Progress) -> None:
        """Print the totals, not too often."""
        now = time.monotonic()
        if now - self._last_s >= self._interval_s:
            self._last_s = now
            print(progress_line(progress), file=self._stream, flush=True)

    def close(self) -> None:
        """Nothing to restore."""


class JsonReporter:
    """One JSON object a line: `{"event": "progress", ...}` or `{"event": "message", ...}`."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        self._stream = stream

    def _emit(self, values: dict[str, Any]) -> None:
        print(json.dumps(values), file=self._stream, flush=True)

    def message(self, text: str) -> None:
        """Emit a message event."""
        self._emit({"event": "message", "text": text})

    def update(self, progress: Progress) -> None:
        """Emit a progress event."""
        self._emit({"event": "progress", **progress.as_dict()})

    def close(self) -> None:
        """Nothing to restore."""
