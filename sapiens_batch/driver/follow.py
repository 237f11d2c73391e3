"""The driver's side of a running job: count receipts, seal and commit shards, try again.

The driver holds no truth. What it keeps in memory are the chunks that are done; all of it can be
read back from the store, which is what resuming does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from sapiens_batch.driver.progress import Progress, Reporter
from sapiens_batch.errors import DamagedReceiptError, ProtocolError, StorageError
from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.documents import Counts
from sapiens_batch.protocol.manifest import READ_THREADS, Manifest
from sapiens_batch.protocol.open_shard import OpenShard
from sapiens_batch.protocol.receipt import read_receipt
from sapiens_batch.protocol.seal import seal_shard
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.flow import Failure, Outcome, failure_of

SEAL_THREADS = 4
"""Sealing waits for storage, not for the CPU."""

WAVE_SHARDS = 4096
"""Shards per Ray graph; one read task each, and Ray plans every task before it starts."""


class Driver:
    """Follows one job from its todo list to its commits.

    Args:
        context: The job.
        manifest: Its stored state.
        progress: Totals to keep up to date.
        reporter: Where to show them.
        visible: Counts of the shards to do that are visible already, by shard id: they are
            labeled again, and replaced in the totals when that is done.
    """

    def __init__(
        self,
        context: JobContext,
        manifest: Manifest,
        progress: Progress,
        reporter: Reporter,
        visible: Mapping[str, Counts],
    ) -> None:
        self._context = context
        self._manifest = manifest
        self._progress = progress
        self._reporter = reporter
        self._visible = visible
        self._open: dict[str, OpenShard] = {}
        self._seals: dict[str, Future[Commit]] = {}
        self._executor = ThreadPoolExecutor(SEAL_THREADS, thread_name_prefix="seal")
        self.failures: list[Failure] = []

    def resume(self, todo: Sequence[ShardTodo]) -> None:
        """Take up shards where earlier runs left them; seal those that are complete.

        One receipt is read of each shard that was begun, the one that can be its last.
        """
        with ThreadPoolExecutor(READ_THREADS) as pool:
            for item, end in zip(todo, pool.map(self._find_end, todo), strict=True):
                self._open[item.shard.shard_id] = OpenShard(item, set(item.done_chunks), end)
        self.seal_complete()

    def waves(self) -> Iterator[list[ShardTodo]]:
        """What is left to label, in groups of shards that one Ray graph can plan."""
        rest = [one.rest() for one in self._open.values() if not self._is_complete(one)]
        for start in range(0, len(rest), WAVE_SHARDS):
            yield rest[start : start + WAVE_SHARDS]

    def accept(self, outcome: Outcome) -> None:
        """Take in what became of one chunk."""
        if outcome.failure is not None:
            self.fail(outcome.failure)
        receipt = outcome.receipt
        shard = self._open.get(receipt.shard_id) if receipt is not None else None
        if shard is not None and receipt is not None and shard.add(receipt):
            anew = receipt.shard_id not in self._visible
            self._progress.chunk_done(receipt, shard.num_labeled(receipt), counted=anew)
            self._seal_if_complete(shard)
        self._collect(wait=False)
        self._reporter.update(self._progress)

    def fail(self, failure: Failure) -> None:
        """Note something that went wrong and is tried again in the next pass."""
        self.failures.append(failure)
        self._progress.failures += 1

    def seal_complete(self) -> None:
        """Begin to seal every shard that is complete, those whose sealing failed among them."""
        for shard in list(self._open.values()):
            self._seal_if_complete(shard)

    def settle(self) -> None:
        """Wait for the seals that are under way."""
        self._collect(wait=True)
        self._reporter.update(self._progress)

    def close(self) -> None:
        """Finish the seals that are under way and stop the threads."""
        self._executor.shutdown(wait=True)

    @property
    def has_open_shards(self) -> bool:
        """Whether a shard is not sealed yet."""
        return bool(self._open)

    def _is_complete(self, shard: OpenShard) -> bool:
        return shard.is_complete(self._context.chunk_samples)

    def _find_end(self, item: ShardTodo) -> int | None:
        """Number of a shard's last chunk, where its receipt is there."""
        if item.samples is not None or not item.done_chunks:
            return None
        highest = max(item.done_chunks)
        store, shard_id = self._context.store, item.shard.shard_id
        receipt, _ = read_receipt(store, shard_id, highest, item.generation)
        return highest if receipt.last else None

    def _seal_if_complete(self, shard: OpenShard) -> None:
        shard_id = shard.todo.shard.shard_id
        if shard_id not in self._seals and self._is_complete(shard):
            self._seals[shard_id] = self._executor.submit(self._seal, shard)

    def _seal(self, shard: OpenShard) -> Commit:
        """Seal a shard, in a thread."""
        chunks = shard.sealed_chunks(self._context.chunk_samples)
        return seal_shard(self._context.seal_job, shard.todo, chunks)

    def _collect(self, *, wait: bool) -> None:
        for shard_id, future in list(self._seals.items()):
            if wait or future.done():
                del self._seals[shard_id]
                self._finish(self._open[shard_id], future)

    def _finish(self, shard: OpenShard, future: Future[Commit]) -> None:
        found = shard.todo.shard
        try:
            commit = future.result()
        except DamagedReceiptError as error:
            order = self._manifest.relabel(found.shard_id, None, cause="repair", message=str(error))
            self._open[found.shard_id] = OpenShard(
                ShardTodo(found, generation=order.generation), set()
            )
            self.fail(failure_of(error, found.shard_id, None, "seal"))
            return
        except (StorageError, ProtocolError) as error:
            self.fail(failure_of(error, found.shard_id, None, "seal"))
            return
        del self._open[found.shard_id]
        before = self._visible.get(found.shard_id)
        if before is None:
            self._progress.shard_done(found.size_bytes, commit.counts, counted=shard.counts)
        else:
            self._progress.shard_replaced(before, commit.counts)
