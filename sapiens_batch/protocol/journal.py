"""The journal of a run: its lines, and the segments in which they are stored.

One start of the command is a run. What it was, how far it got and what went wrong is written as
JSON objects, one a line, into create-only segments; each writer of a run counts its own. When to
write is left to `driver.journal`, reading to `protocol.runs`. A journal decides nothing about
labels: without it a job ends with the same ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from sapiens_batch.protocol import keys
from sapiens_batch.storage import Store
from sapiens_batch.storage.addresses import public_text

Place = tuple[str, int, int | None]
"""(shard_id, generation, chunk), or None for the chunk while a shard is read."""

Line = dict[str, Any]

IN_FLIGHT = "inflight"
"""The writer that notes chunks before they go to a device."""


def line(now_s: float, kind: str, **fields: Any) -> Line:
    """A line: when, what, and its fields as JSON values."""
    when = datetime.fromtimestamp(now_s, UTC).isoformat(timespec="milliseconds")
    return {"t": when, "kind": kind, **fields}


def in_flight_line(now_s: float, places: Iterable[Place]) -> Line:
    """The line that says what is begun and has not come through."""
    return line(now_s, "in_flight", chunks=list(places))


def encode(lines: Iterable[Line]) -> bytes:
    """The bytes of a segment, without secrets of addresses that an error may show."""
    texts = (json.dumps(one, separators=(",", ":"), default=str) for one in lines)
    return b"".join(public_text(text).encode() + b"\n" for text in texts)


def decode(data: bytes) -> list[Line]:
    """The lines of a segment; what is damaged is left out, because nothing rests on it."""
    found = []
    for text in data.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            one = json.loads(text)
            if isinstance(one, dict) and all(isinstance(one.get(x), str) for x in ("t", "kind")):
                found.append(one)
    return found


def trace_id(trace: str) -> str:
    """What two failures share that happened in the same way, 12 hex digits.

    Frames and kinds of errors count; the texts of errors, which name samples and chunks, do not.
    """
    lines = (text if text.startswith(" ") else text.partition(":")[0] for text in trace.split("\n"))
    return hashlib.sha256("\n".join(lines).encode(errors="replace")).hexdigest()[:12]


class Segments:
    """Writes the segments of one writer of a run, one after the other. Picklable.

    Args:
        store: The job directory.
        run: Id of the run.
        writer: Who writes; empty for the driver.
    """

    def __init__(self, store: Store, run: str, writer: str = "") -> None:
        self._store = store
        self._run = run
        self._writer = writer
        self._number = 0

    def write(self, data: bytes) -> None:
        """Store a segment.

        After an error call it again with the same bytes: where they arrived all the same, they are
        found and not stored twice.

        Raises:
            StorageError: The store refused.
        """
        while not self._is_stored(keys.journal(self._run, self._number, self._writer), data):
            self._number += 1
        self._number += 1

    def _is_stored(self, key: str, data: bytes) -> bool:
        return self._store.create(key, data) or self._store.read(key) == data


class InFlightLog:
    """Notes which chunks are in flight, at once, for runs after one that died. Picklable.

    Such a run may die of a chunk before its driver writes the journal again. Its counter of
    attempts notes each chunk here before a device gets it. Several copies never collide.

    Args:
        store: The job directory.
        run: Id of the run.
    """

    def __init__(self, store: Store, run: str) -> None:
        self._segments = Segments(store, run, IN_FLIGHT)

    def write(self, places: Iterable[Place], now_s: float) -> None:
        """Store what is in flight now; durable when this returns.

        Args:
            places: Everything that is begun and has not come through.
            now_s: Unix time.

        Raises:
            StorageError: The store refused.
        """
        self._segments.write(encode([in_flight_line(now_s, places)]))
