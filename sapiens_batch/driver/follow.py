"""The driver's side of a running job: count receipts, have shards sealed, know what is left.

The driver holds no truth. What it keeps in memory are the chunks that are done; all of it can be
read back from the store, which is what resuming does. It does nothing for a sample and little for a
chunk.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from sapiens_batch.driver.journal import Journal
from sapiens_batch.driver.progress import Progress, Reporter
from sapiens_batch.driver.seals import Sealed, Seals
from sapiens_batch.driver.sizing import WAVE_SHARDS
from sapiens_batch.errors import DamagedReceiptError
from sapiens_batch.protocol.documents import Counts
from sapiens_batch.protocol.manifest import READ_THREADS, Manifest
from sapiens_batch.protocol.open_shard import OpenShard
from sapiens_batch.protocol.receipt import read_receipt
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.flow import Failure, Outcome, distinct
from sapiens_batch.storage import MissingObjectError

_log = logging.getLogger(__name__)

REPORT_INTERVAL_S = 0.25
_SEAL_POLL_S = 1.0


class Follower:
    """Follows one job from its todo list to its commits.

    Args:
        context: The job.
        manifest: Its stored state.
        progress: Totals to keep up to date.
        reporter: Where to show them.
        visible: Counts of the shards to do that are visible already, by shard id: they are
            labeled again, and replaced in the totals when that is done.
        seals: Seals shards.
        journal: Where what goes wrong is written down.
    """

    def __init__(
        self,
        context: JobContext,
        manifest: Manifest,
        progress: Progress,
        reporter: Reporter,
        visible: Mapping[str, Counts],
        seals: Seals,
        journal: Journal,
    ) -> None:
        self._context = context
        self._manifest = manifest
        self._progress = progress
        self._reporter = reporter
        self._visible = visible
        self._seals = seals
        self._journal = journal
        self._open: dict[str, OpenShard] = {}
        self._sealing: set[str] = set()
        self._reported_s = 0.0
        self.num_done = 0
        self.failures: list[Failure] = []

    def resume(self, todo: Sequence[ShardTodo]) -> None:
        """Take up shards where earlier runs left them; seal those that are complete.

        One receipt is read of each shard that was begun, the one that can be its last.
        """
        with ThreadPoolExecutor(READ_THREADS) as pool:
            for shard in pool.map(self._take_up, todo):
                self._open[shard.todo.shard.shard_id] = shard
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
            self.num_done += 1
            self._progress.chunk_done(receipt, shard.num_labeled(receipt), counted=anew)
            self._seal_if_complete(shard)
        if time.monotonic() - self._reported_s >= REPORT_INTERVAL_S:
            self._collect(timeout_s=0.0)
            self._report()

    def fail(self, failure: Failure) -> None:
        """Note something that went wrong and is tried again in the next pass."""
        self.failures.append(failure)
        self._journal.failure(failure)
        self._progress.failures += 1
        shard = self._open.get(failure.shard_id)
        if shard is None:
            return
        if failure.damaged:
            if failure.shard_id not in self._visible:
                self._progress.shard_replaced(shard.counts, Counts())
            self._open[failure.shard_id] = self._ordered_anew(shard.todo, failure.message)
        elif failure.suspect and failure.chunk is not None:
            suspects = shard.todo.suspects | {failure.chunk}
            shard.todo = replace(shard.todo, suspects=suspects)

    def report_failures(self, attempt: int) -> None:
        """Show what went wrong in a pass."""
        for failure in distinct(self.failures):
            text = f"attempt {attempt}: {failure.stage} failed: {failure.message}"
            self._reporter.message(text)

    def unexplained(self, wave: Sequence[ShardTodo]) -> int:
        """Shards of a wave that gave neither all their chunks nor a failure."""
        explained = {failure.shard_id for failure in self.failures}
        if "" in explained:  # the graph as a whole
            return 0
        open_shards = (self._open.get(todo.shard.shard_id) for todo in wave)
        return sum(
            shard is not None
            and not self._is_complete(shard)
            and shard.todo.shard.shard_id not in explained
            for shard in open_shards
        )

    def seal_complete(self) -> None:
        """Have every shard sealed that is complete, those whose sealing failed among them."""
        for shard in list(self._open.values()):
            self._seal_if_complete(shard)

    def settle(self) -> None:
        """Wait for the seals that are under way."""
        while self._seals.num_left:
            self._collect(timeout_s=_SEAL_POLL_S)
        self._report()

    @property
    def has_open_shards(self) -> bool:
        """Whether a shard is not sealed yet."""
        return bool(self._open)

    def _is_complete(self, shard: OpenShard) -> bool:
        return shard.is_complete(self._context.chunk_samples)

    def say(self, text: str) -> None:
        """Tell a person, and the journal."""
        self._reporter.message(text)
        self._journal.event("message", text=text)

    def note(self, kind: str, **fields: object) -> None:
        """Tell the journal."""
        self._journal.event(kind, **fields)

    def _report(self) -> None:
        self._reported_s = time.monotonic()
        self._reporter.update(self._progress)

    def _take_up(self, todo: ShardTodo) -> OpenShard:
        shard = OpenShard(todo, set(todo.done_chunks))
        if todo.samples is not None or not todo.done_chunks:
            return shard
        highest, shard_id = max(todo.done_chunks), todo.shard.shard_id
        try:
            receipt, _ = read_receipt(self._context.store, shard_id, highest, todo.generation)
        except DamagedReceiptError as error:
            if isinstance(error.__cause__, MissingObjectError):  # a listing that lags
                shard.done.discard(highest)
                return shard
            return self._ordered_anew(todo, str(error))
        shard.end = highest if receipt.last else None
        return shard

    def _ordered_anew(self, todo: ShardTodo, why: str) -> OpenShard:
        """A shard with a receipt that is lost or damaged, to be labeled from the start."""
        shard_id = todo.shard.shard_id
        self.say(f"shard {todo.shard.key} is labeled anew: {why}")
        order = self._manifest.relabel(
            shard_id, None, cause="repair", message=why, above=todo.generation
        )
        return OpenShard(ShardTodo(todo.shard, generation=order.generation), set())

    def _seal_if_complete(self, shard: OpenShard) -> None:
        shard_id = shard.todo.shard.shard_id
        if shard_id not in self._sealing and self._is_complete(shard):
            self._sealing.add(shard_id)
            self._seals.add(shard.todo, shard.sealed_chunks(self._context.chunk_samples))

    def _collect(self, *, timeout_s: float) -> None:
        for sealed in self._seals.done(timeout_s=timeout_s):
            self._sealing.discard(sealed.todo.shard.shard_id)
            self._finish(sealed)

    def _finish(self, sealed: Sealed) -> None:
        found = sealed.todo.shard
        if sealed.failure is not None:
            self.fail(sealed.failure)
            return
        assert sealed.counts is not None
        self._manifest.note_commit(found.shard_id, sealed.todo.generation)
        shard = self._open.pop(found.shard_id)
        _log.info("shard %s is committed: %s", found.key, sealed.counts)
        before = self._visible.get(found.shard_id)
        if before is None:
            self._progress.shard_done(found.size_bytes, sealed.counts, counted=shard.counts)
        else:
            self._progress.shard_replaced(before, sealed.counts)
