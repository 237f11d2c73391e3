"""Writes the journal of a run, and says the same to Python's logging.

Lines are kept in memory and stored by a thread of their own: at the start, soon after a failure,
about once a minute, and at the end; never one request a chunk. A store that refuses ends no job:
the lines are kept, up to a limit, and tried again. What lines mean is in `protocol.journal`.
"""

from __future__ import annotations

import logging
import os
import platform
import secrets
import socket
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from sapiens_batch.protocol.journal import (
    Line,
    Place,
    Segments,
    encode,
    in_flight_line,
    line,
    trace_id,
)
from sapiens_batch.storage import Store

if TYPE_CHECKING:
    from sapiens_batch.stages.flow import Failure

URGENT_EVERY_S: Final = 10.0
EVERY_S: Final = 60.0
CALM_AFTER_S: Final = 3600.0
CALM_EVERY_S: Final = 300.0
"""After an hour one object every five minutes: 9,000 in a month."""

MAX_LINES: Final = 1_000
"""Kept while they cannot be stored; with `MAX_TRACE` that is at most 18 MB, twice."""

MAX_TRACE: Final = 16_000
MAX_MESSAGE: Final = 2_000

_DECIDING: Final = (
    "sapiens-batch", "torch", "ray", "zarr", "numpy", "pyarrow", "pillow", "pillow-heif",
    "opencv-python-headless", "onnxruntime",
)  # fmt: skip
CLOSE_TIMEOUT_S: Final = 120.0
"""A store that hangs keeps a run from ending for no longer."""

_log = logging.getLogger(__name__)


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide labels, where they are installed."""
    found = {"python": platform.python_version()}
    for name in _DECIDING:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def new_run_id() -> str:
    """An id for a run that begins now; ids sort by time."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(4)}"


class Journal:
    """The journal of one run; a context that ends it, whatever ends the run.

    Args:
        store: The job directory.
        run: Id of the run.
        urgent_every_s: Seconds between two writes while there are failures.
        every_s: Seconds between two writes otherwise, in the first hour.
    """

    def __init__(
        self,
        store: Store,
        run: str,
        *,
        urgent_every_s: float = URGENT_EVERY_S,
        every_s: float = EVERY_S,
    ) -> None:
        self.run = run
        self._segments = Segments(store, run)
        self._urgent_every_s = urgent_every_s
        self._every_s = every_s
        self._began_s = self._tried_s = time.monotonic()
        self._lines: list[Line] = []
        self._dropped = 0
        self._traces: set[str] = set()
        self._unstored = b""
        self._looks: tuple[Callable[[], Line], ...] = ()
        self._looked_s = float("-inf")
        self._has_ended = False
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._has_ended:
            why = "" if error is None else f"{type(error).__name__}: {error}"[:MAX_MESSAGE]
            text = "" if error is None else "".join(traceback.format_exception(error))
            self.end(getattr(error, "exit_code", 1), why, trace=_shortened(text))
        self._closing.set()
        self._thread.join(CLOSE_TIMEOUT_S)
        if self._thread.is_alive() or not self.flush():
            _log.warning("the last lines of the journal of run %s are lost", self.run)

    def start(self, **facts: Any) -> None:
        """Say what begins, with what makes its labels and where, and store that at once."""
        process = {"host": socket.gethostname(), "pid": os.getpid()}
        self.event("started", **facts, versions=package_versions(), **process)
        self.flush()

    def event(self, kind: str, **fields: Any) -> None:
        """Add a line, to be stored before long.

        Args:
            kind: What happened.
            fields: JSON values.
        """
        _log.info("%s%s", kind, _shown(fields))
        self._add(line(time.time(), kind, **fields))

    def failure(self, failure: Failure) -> None:
        """Add what went wrong, with its traceback, unless the segment has the same already."""
        place = {"shard": failure.shard_id, "chunk": failure.chunk}
        _log.warning("%s failed%s", failure.stage, _shown({**place, "why": failure.message}))
        _log.debug("%s", failure.trace)
        fields = {
            "stage": failure.stage,
            **place,
            "message": failure.message[:MAX_MESSAGE],
            "trace_id": trace_id(failure.trace or failure.message),
        }
        self._add(line(time.time(), "failure", **fields), _shortened(failure.trace))

    @contextmanager
    def watching(
        self,
        progress: Callable[[], Mapping[str, Any]],
        in_flight: Callable[[], Collection[Place]],
    ) -> Iterator[None]:
        """Have segments say how far the run is and what it works on, until the context ends.

        Args:
            progress: Totals as JSON values; asked about once a minute.
            in_flight: Everything that is begun and has not come through; asked for every segment.
                Both are called by another thread, and may raise what they like.
        """
        self._looks = (
            lambda: line(time.time(), "progress", **progress()),
            lambda: in_flight_line(time.time(), in_flight()),
        )
        try:
            yield
        finally:
            self._look(at_all=True)
            self._looks = ()

    def end(self, exit_code: int, why: str = "", **summary: Any) -> None:
        """Say how the run ends; a journal without this line is of a run that died."""
        self._has_ended = True
        self.event("ended", exit_code=exit_code, why=why, **summary)

    def flush(self) -> bool:
        """Store what there is; False where the store refused, and the lines are kept."""
        with self._flushing:
            self._tried_s = time.monotonic()
            self._look()
            try:
                self._store()
            except Exception as error:  # whatever a store raises: a journal ends no job
                _log.warning("the journal of run %s cannot be written: %s", self.run, error)
                return False
            return True

    def _store(self) -> None:
        while self._unstored or self._lines:
            if not self._unstored:
                self._unstored = self._taken()
            self._segments.write(self._unstored)
            self._unstored = b""

    def _taken(self) -> bytes:
        """The lines of the next segment."""
        with self._lock:
            lines, self._lines = self._lines, []
            dropped, self._dropped = self._dropped, 0
            self._traces.clear()
        if dropped:
            lines.append(line(time.time(), "dropped", lines=dropped))
        return encode(lines)

    def _add(self, one: Line, trace: str = "") -> None:
        with self._lock:
            if one["kind"] == "in_flight":  # of what is not stored yet only the newest is news
                self._lines = [kept for kept in self._lines if kept["kind"] != "in_flight"]
            if len(self._lines) >= MAX_LINES and one["kind"] != "ended":
                self._dropped += 1
                return
            if trace and one["trace_id"] not in self._traces:
                self._traces.add(one["trace_id"])
                one["trace"] = trace
            self._lines.append(one)

    def _look(self, *, at_all: bool = False) -> None:
        """Add what the run says of itself; its totals not too often, unless `at_all`."""
        now_s = time.monotonic()
        is_due = at_all or now_s - self._looked_s >= self._every_s
        self._looked_s = now_s if is_due else self._looked_s
        for look in self._looks if is_due else self._looks[1:]:
            try:
                self._add(look())
            except Exception as error:  # what is looked at may be gone, such as a cluster
                _log.debug("nothing to see for the journal: %s", error)

    def _work(self) -> None:
        while not self._closing.wait(min(1.0, self._urgent_every_s)):
            if time.monotonic() - self._tried_s >= self._interval_s():
                self.flush()

    def _interval_s(self) -> float:
        if any(one["kind"] == "failure" for one in list(self._lines)):
            return self._urgent_every_s
        is_calm = time.monotonic() - self._began_s > CALM_AFTER_S
        return max(self._every_s, CALM_EVERY_S) if is_calm else self._every_s


def _shown(fields: Mapping[str, Any]) -> str:
    return "".join(f" {name}={value}" for name, value in fields.items() if value not in (None, ""))


def _shortened(trace: str) -> str:
    """A traceback, or the beginning and the end of one that is very long."""
    if len(trace) <= MAX_TRACE:
        return trace
    return f"{trace[: MAX_TRACE // 4]}\n  …\n{trace[-(MAX_TRACE * 3 // 4) :]}"
