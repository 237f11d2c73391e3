"""The driver's side of a running job: count receipts, seal and commit shards, try again.

The driver holds no truth. What it keeps in memory are receipts of shards in flight, so that it can
tell when one is complete; all of it can be read back from the store, which is what resuming does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from sapiens_batch.errors import ProtocolError, StorageError
from sapiens_batch.job.commit import Commit, tiling
from sapiens_batch.job.manifest import Manifest, ShardTodo
from sapiens_batch.job.receipt import Receipt
from sapiens_batch.pipeline.cells import Failure, Outcome
from sapiens_batch.pipeline.context import JobContext
from sapiens_batch.pipeline.progress import Progress, Reporter
from sapiens_batch.pipeline.seal import seal_shard
from sapiens_batch.records import Shard

SEAL_THREADS = 4
"""Sealing waits for storage, not for the CPU."""

WAVE_SHARDS = 4096
"""Shards per Ray graph; one read task each, and Ray plans every task before it starts."""


@dataclass(slots=True)
class ShardLedger:
    """Receipts of one shard in flight, by chunk."""

    shard: Shard
    receipts: dict[int, Receipt] = field(default_factory=dict)

    def is_complete(self, chunk_samples: int) -> bool:
        """Whether the receipts tile the shard."""
        return tiling(list(self.receipts.values()), chunk_samples) is not None

    def todo(self) -> ShardTodo:
        """The shard with its done chunks, frozen."""
        return ShardTodo(self.shard, frozenset(self.receipts))


class Driver:
    """Follows one job from its todo list to its commits.

    Args:
        context: The job.
        manifest: Its stored state.
        progress: Totals to keep up to date.
        reporter: Where to show them.
    """

    def __init__(
        self, context: JobContext, manifest: Manifest, progress: Progress, reporter: Reporter
    ) -> None:
        self._context = context
        self._manifest = manifest
        self._progress = progress
        self._reporter = reporter
        self._ledgers: dict[str, ShardLedger] = {}
        self._seals: list[tuple[ShardLedger, Future[Commit]]] = []
        self._executor = ThreadPoolExecutor(SEAL_THREADS, thread_name_prefix="seal")
        self.failures: list[Failure] = []

    def resume(self, todo: Iterable[ShardTodo]) -> None:
        """Take up shards with the receipts of earlier runs; seal those that are complete."""
        for item in todo:
            ledger = ShardLedger(item.shard)
            self._ledgers[item.shard.shard_id] = ledger
            if item.done_chunks:
                for receipt in self._manifest.receipts(item.shard.shard_id):
                    ledger.receipts[receipt.chunk] = receipt
                    self._progress.resume(receipt.counts)
                self._seal_if_complete(ledger)

    def waves(self) -> Iterator[list[ShardTodo]]:
        """The shards that are not sealed, in groups that one Ray graph can plan."""
        open_shards = [ledger.todo() for ledger in self._ledgers.values()]
        for start in range(0, len(open_shards), WAVE_SHARDS):
            yield open_shards[start : start + WAVE_SHARDS]

    def accept(self, outcome: Outcome) -> None:
        """Take in what became of one chunk."""
        if outcome.failure is not None:
            self.failures.append(outcome.failure)
            self._progress.failures += 1
        if outcome.receipt is not None:
            ledger = self._ledgers.get(outcome.receipt.shard_id)
            if ledger is not None and outcome.receipt.chunk not in ledger.receipts:
                ledger.receipts[outcome.receipt.chunk] = outcome.receipt
                self._progress.chunk_done(outcome.receipt)
                self._seal_if_complete(ledger)
        self._collect(wait=False)
        self._reporter.update(self._progress)

    def settle(self) -> None:
        """Wait for the seals that are under way."""
        self._collect(wait=True)
        self._reporter.update(self._progress)

    def close(self) -> None:
        """Finish the seals that are under way and stop the threads."""
        self._executor.shutdown(wait=True)

    @property
    def open_shards(self) -> Sequence[Shard]:
        """Shards that are neither sealed nor being sealed."""
        return [ledger.shard for ledger in self._ledgers.values()]

    def _seal_if_complete(self, ledger: ShardLedger) -> None:
        if ledger.is_complete(self._context.chunk_samples):
            del self._ledgers[ledger.shard.shard_id]
            receipts = list(ledger.receipts.values())
            future = self._executor.submit(seal_shard, self._context, ledger.shard, receipts)
            self._seals.append((ledger, future))

    def _collect(self, *, wait: bool) -> None:
        pending = []
        for ledger, future in self._seals:
            if wait or future.done():
                self._finish(ledger, future)
            else:
                pending.append((ledger, future))
        self._seals = pending

    def _finish(self, ledger: ShardLedger, future: Future[Commit]) -> None:
        try:
            commit = future.result()
        except (StorageError, ProtocolError) as error:
            self.failures.append(
                Failure(ledger.shard.shard_id, None, "seal", str(error), trace=str(error))
            )
            self._progress.failures += 1
            return
        self._progress.shard_done(commit, ledger.shard.size_bytes)
