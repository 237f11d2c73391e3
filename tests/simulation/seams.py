"""Where the simulator takes the place of the world: random ids, clocks, threads, and Parquet plans.

Nothing of the protocol is replaced, only what it gets from outside, so that a history follows from
its seed alone. Threads of a pool become one after the other: what can go wrong between two of them
can go wrong between two actors as well.
"""

from __future__ import annotations

import contextlib
import io
import random
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow.parquet as pq

from sapiens_batch.protocol import documents, manifest, plan, put, seal
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.records import LabelSchema
from sapiens_batch.sinks import zarr
from sapiens_batch.storage import Store
from sapiens_batch.verify import job as verify_job
from sapiens_batch.verify import objects
from sapiens_batch.verify.report import Finding
from sapiens_batch.verify.shards import Checked, ShardChecker
from tests.simulation.world import World


class InlineExecutor:
    """A pool of threads that does everything at once, in order."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> InlineExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """See `Executor.submit`."""
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def map(self, function: Callable[..., Any], *arguments: Iterable[Any]) -> Iterator[Any]:
        """See `Executor.map`: all of them run, whatever becomes of the first."""
        futures = [self.submit(function, *args) for args in zip(*arguments, strict=False)]
        return (future.result() for future in futures)


class DigestChecker(ShardChecker):
    """Checks committed shards as far as sizes and digests go; tables here are no Parquet."""

    def __init__(self, store: Store, job: JobDocument, sample_fraction: float) -> None:
        self.checked = Checked()
        self._store = store
        self._sample_fraction = sample_fraction

    def check(self, commit: Any) -> Iterator[Finding]:
        """See `ShardChecker.check`."""
        yield from self._check_objects(commit)


class _Batch:
    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def to_pylist(self) -> list[dict[str, Any]]:
        return self._rows


class RememberedParquet:
    """`pyarrow.parquet` that reads the same bytes once; a plan is read a dozen times a history."""

    ParquetWriter = pq.ParquetWriter

    @staticmethod
    def read_table(source: io.BytesIO, columns: list[str]) -> Any:
        """See `pyarrow.parquet.read_table`."""
        return _table(source.getvalue()).select(columns)

    class ParquetFile:
        """See `pyarrow.parquet.ParquetFile`."""

        def __init__(self, source: io.BytesIO) -> None:
            self._data = source.getvalue()

        def iter_batches(self, batch_size: int) -> Iterator[_Batch]:
            """All rows at once."""
            yield _Batch(_rows(self._data))


@lru_cache(1000)
def _table(data: bytes) -> Any:
    return pq.read_table(io.BytesIO(data))


@lru_cache(1000)
def _rows(data: bytes) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = _table(data).to_pylist()
    return rows


def _remembered_metadata() -> Callable[[LabelSchema, int, int], bytes]:
    make = zarr.array_metadata
    known: dict[tuple[str, int, int], bytes] = {}

    def array_metadata(schema: LabelSchema, num_rows: int, shard_rows: int) -> bytes:
        place = (schema.task, num_rows, shard_rows)
        if place not in known:
            known[place] = make(schema, num_rows, shard_rows)
        return known[place]

    return array_metadata


@contextlib.contextmanager
def outside_replaced() -> Iterator[None]:
    """Put the simulator's means in the place of threads and tables; once for many histories."""
    with contextlib.ExitStack() as stack:
        for module in (manifest, seal, objects):
            stack.enter_context(mock.patch.object(module, "ThreadPoolExecutor", InlineExecutor))
        for module in (put, seal):
            stack.enter_context(mock.patch.object(module, "reach", lambda point: None))
        # sizes of receipts, and with them which bit is flipped, follow from the seed
        stopped = SimpleNamespace(perf_counter=lambda: 0.0)
        stack.enter_context(mock.patch.object(put, "time", stopped))
        encode = lru_cache(1000)(plan._encode)
        stack.enter_context(
            mock.patch.object(plan, "_encode", lambda shards: encode(tuple(shards)))
        )
        stack.enter_context(mock.patch.object(zarr, "array_metadata", _remembered_metadata()))
        stack.enter_context(mock.patch.object(plan, "pq", RememberedParquet))
        stack.enter_context(mock.patch.object(verify_job, "ShardChecker", DigestChecker))
        yield


@contextlib.contextmanager
def ids_and_clocks(world: World, rng: random.Random) -> Iterator[None]:
    """Take random ids from the seed, and the time from the actor whose turn it is."""

    def fresh() -> uuid.UUID:
        return uuid.UUID(int=rng.getrandbits(128))

    def time_s() -> float:
        return world.clock_s + (world.current.skew_s if world.current is not None else 0.0)

    class Clock:
        @staticmethod
        def now(tz: tzinfo | None = None) -> datetime:
            return datetime.fromtimestamp(time_s(), tz or UTC)

    before = uuid.uuid4, documents.datetime
    uuid.uuid4, documents.datetime = fresh, Clock  # type: ignore[assignment,misc,attr-defined]
    try:
        yield
    finally:
        uuid.uuid4, documents.datetime = before  # type: ignore[misc,attr-defined]
