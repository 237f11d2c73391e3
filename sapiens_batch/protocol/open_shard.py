"""One shard while it is labeled: which chunks are done, and whether that is all of them (I5).

Pure bookkeeping over receipts. The truth is in the store: what is kept here can be read back from
the keys of receipts, which is what resuming does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sapiens_batch.protocol.documents import Counts
from sapiens_batch.protocol.receipt import Receipt
from sapiens_batch.protocol.todo import ShardTodo


@dataclass(slots=True)
class OpenShard:
    """A shard that is not sealed.

    Attributes:
        todo: What was left to do when the run began.
        done: Chunks that need no work: they have a receipt, or hold no ordered sample.
        end: Number of the shard's last chunk, once known.
        counts: What the receipts that this run has seen count.
    """

    todo: ShardTodo
    done: set[int]
    end: int | None = None
    counts: Counts = field(default_factory=Counts)

    def add(self, receipt: Receipt) -> bool:
        """Take in a receipt; False where it was known."""
        if receipt.chunk in self.done or receipt.generation != self.todo.generation:
            return False
        self.done.add(receipt.chunk)
        self.counts = self.counts + receipt.counts
        if receipt.last:
            self.end = receipt.chunk
        return True

    def num_labeled(self, receipt: Receipt) -> int:
        """Samples of a chunk that were to be labeled."""
        samples = range(receipt.start, receipt.stop)
        return len(samples if self.todo.samples is None else self.todo.samples & set(samples))

    def is_complete(self, chunk_samples: int) -> bool:
        """Whether every chunk is done."""
        ordered = self.todo.ordered_chunks(chunk_samples)
        if ordered is not None:
            return ordered <= self.done
        return self.end is not None and len(self.done) == self.end + 1

    def sealed_chunks(self, chunk_samples: int) -> frozenset[int]:
        """Chunks of a complete shard whose receipts its commit stands on."""
        ordered = self.todo.ordered_chunks(chunk_samples)
        return frozenset(self.done) if ordered is None else ordered

    def rest(self) -> ShardTodo:
        """What is left to do, frozen."""
        return replace(self.todo, done_chunks=frozenset(self.done))
