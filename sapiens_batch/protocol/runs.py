"""Reading the journals of a job's runs: how they ended, what failed, what they had in flight.

Reads a bounded number of segments of a bounded number of runs, whatever their length. Whether a run
that has not ended is still at work shows in the time of its last line alone. Nothing is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from sapiens_batch.protocol import keys
from sapiens_batch.protocol.journal import IN_FLIGHT, Line, Place, decode, trace_id
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.storage import MissingObjectError, Store

COUNTED_RUNS: Final = 32
"""Newest runs in which attempts are counted; more than a job allows for a chunk."""

TRACED_RUNS: Final = 5
TRACED_SEGMENTS: Final = 200
"""Of each run, where failures are looked for: 17 hours of a calm one."""

_READ_THREADS: Final = 16


@dataclass(frozen=True, slots=True)
class Run:
    """One run, as far as its journal was read.

    Attributes:
        run: Its id; ids sort by time.
        lines: Lines of its first and its newest segments, in order of time.
    """

    run: str
    lines: tuple[Line, ...]

    def last(self, kind: str) -> Line | None:
        """The newest line of a kind."""
        return next((one for one in reversed(self.lines) if one["kind"] == kind), None)

    @property
    def last_word(self) -> str:
        """Time of the newest line; empty where there is none."""
        return self.lines[-1]["t"] if self.lines else ""

    @property
    def has_ended(self) -> bool:
        """Whether it came to its end; else it died, or is still at work."""
        return self.last("ended") is not None

    @property
    def in_flight(self) -> tuple[Place, ...]:
        """What was begun and had not come through when it last said so."""
        found = self.last("in_flight") or {}
        return tuple(map(tuple, found["chunks"])) if _are_places(found.get("chunks")) else ()


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures that happened in the same way.

    Attributes:
        stage: The stage.
        message: Text of the newest.
        trace: Traceback of the newest, where one was kept.
        num_failures: How many.
        first: Time of the first.
        last: Time of the newest.
        shard_id: Shard of the newest; empty where it is about no shard.
        chunk: Chunk of the newest, or None.
    """

    stage: str
    message: str
    trace: str
    num_failures: int
    first: str
    last: str
    shard_id: str
    chunk: int | None


def read_runs(store: Store, *, newest: int, segments: int = 1, besides: str = "") -> Iterator[Run]:
    """The newest runs of a job, newest first.

    Args:
        store: The job directory.
        newest: How many runs.
        segments: How many of the newest segments of each; the first one is read in any case.
        besides: Id of a run to leave out: the one that asks.

    Raises:
        StorageError: The store cannot be read.
    """
    found: dict[str, dict[str, list[int]]] = {}
    for info in store.list(keys.RUNS):
        if (parsed := keys.parse_journal(info.key)) is not None and parsed[0] != besides:
            found.setdefault(parsed[0], {}).setdefault(parsed[1], []).append(parsed[2])
    with ThreadPoolExecutor(_READ_THREADS) as pool:
        for run in sorted(found, reverse=True)[:newest]:
            wanted = _wanted(run, found[run], segments)
            lines = [
                one for some in pool.map(lambda key: _lines(store, key), wanted) for one in some
            ]
            yield Run(run, tuple(sorted(lines, key=lambda one: str(one["t"]))))


def attempts_of_dead_runs(store: Store, *, besides: str = "") -> Counter[Place]:
    """How often each chunk, or the reading of a shard, was in flight when a run fell silent.

    A run of another driver that is still at work is counted too: its chunks are not this one's, and
    too high a count costs time, never a label.

    Args:
        store: The job directory.
        besides: Id of the run that asks.

    Raises:
        StorageError: The store cannot be read.
    """
    runs = read_runs(store, newest=COUNTED_RUNS, besides=besides)
    return Counter(place for run in runs if not run.has_ended for place in set(run.in_flight))


def last_run_died(store: Store, *, besides: str = "") -> bool:
    """Whether the run before this one fell silent; the same caution as for the counts holds.

    Raises:
        StorageError: The store cannot be read.
    """
    return any(not run.has_ended for run in read_runs(store, newest=1, besides=besides))


def last_failures(store: Store) -> list[FailureGroup]:
    """What failed in the last runs, as far as their newest segments say.

    Raises:
        StorageError: The store cannot be read.
    """
    return group_failures(read_runs(store, newest=TRACED_RUNS, segments=TRACED_SEGMENTS))


def shard_keys(manifest: Manifest, shard_ids: Collection[str]) -> dict[str, str]:
    """Keys of some shards by id; those that are not planned are left out."""
    shards = manifest.shards() if shard_ids else ()
    return {shard.shard_id: shard.key for shard in shards if shard.shard_id in shard_ids}


def group_failures(runs: Iterable[Run]) -> list[FailureGroup]:
    """The failures of some runs, one group for each way to fail, most frequent first."""
    lines = [one for run in runs for one in run.lines if one["kind"] == "failure"]
    groups: dict[tuple[str, str], FailureGroup] = {}
    for one in sorted(lines, key=_time):
        stage, message, trace = (str(one.get(name, "")) for name in ("stage", "message", "trace"))
        place = (stage, str(one.get("trace_id") or trace_id(trace or message)))
        before = groups.get(place)
        groups[place] = FailureGroup(
            stage,
            message,
            trace or (before.trace if before else ""),
            num_failures=before.num_failures + 1 if before else 1,
            first=before.first if before else one["t"],
            last=one["t"],
            shard_id=str(one.get("shard", "")),
            chunk=one.get("chunk"),
        )
    return sorted(groups.values(), key=lambda group: -group.num_failures)


def _wanted(run: str, written: dict[str, list[int]], segments: int) -> Iterator[str]:
    """Keys of the segments to read; of what is in flight only the newest says anything."""
    for writer, numbers in written.items():
        newest = sorted(numbers)[-(1 if writer == IN_FLIGHT else segments) :]
        first = set() if writer == IN_FLIGHT else {min(numbers)}
        yield from (keys.journal(run, number, writer) for number in {*newest, *first})


def _time(one: Line) -> str:
    return str(one["t"])


def _lines(store: Store, key: str) -> list[Line]:
    try:
        return decode(store.read(key))
    except MissingObjectError:
        return []


def _are_places(found: object) -> bool:
    return isinstance(found, Sequence) and all(
        isinstance(one, list)
        and [type(part) for part in one] in ([str, int, int], [str, int, type(None)])
        for one in found
    )
