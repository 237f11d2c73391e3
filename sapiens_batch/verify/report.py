"""What a check of a job found: plain values, for people and for machines.

Finding is left to the sibling modules. A finding that a run can mend says which samples to label
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from sapiens_batch.protocol.documents import Counts


class Fault(StrEnum):
    """What is wrong; the first part says with what."""

    PLAN_DAMAGED = "plan.damaged"
    ORDER_DAMAGED = "order.damaged"
    RECEIPT_DAMAGED = "receipt.damaged"
    RECEIPTS_CONTRADICT = "receipts.contradict"
    COMMIT_DAMAGED = "commit.damaged"
    COMMIT_UNPLANNED = "commit.unplanned"
    COMMIT_COUNTS = "commit.counts"
    OBJECT_MISSING = "object.missing"
    OBJECT_SIZE = "object.size"
    OBJECT_CHECKSUM = "object.checksum"
    TABLE_UNREADABLE = "table.unreadable"
    TABLE_SCHEMA = "table.schema"
    TABLE_ROWS = "table.rows"
    ARRAY_UNREADABLE = "array.unreadable"
    ARRAY_SHAPE = "array.shape"
    ARRAY_ROWS = "array.rows"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        fault: What kind.
        key: The object that shows it.
        message: What, which value, for people.
        shard_id: The shard that suffers, or None for objects of the whole job.
        samples: Samples to label again to mend it: (start, stop), (0, 0) where writing the array
            metadata anew is enough, or None for the whole shard.
    """

    fault: Fault
    key: str
    message: str
    shard_id: str | None = None
    samples: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Drift:
    """How the listed input differs from the plan, by shard key.

    Attributes:
        new: Shards that are not planned; `run` adds them.
        changed: Planned shards whose object is another version now.
        missing: Planned shards whose object is gone.
    """

    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.missing)


@dataclass(frozen=True, slots=True)
class Pile:
    """Objects of one kind that no reader needs.

    Attributes:
        objects: How many.
        size_bytes: Their size.
        examples: Some of their keys.
    """

    objects: int = 0
    size_bytes: int = 0
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The state of a job as its storage shows it.

    Attributes:
        name: The job's name.
        output: Address of the job directory.
        num_shards: Planned shards.
        committed_shards: Visible shards.
        missing_shards: Keys of planned shards that are not visible.
        open_orders: Shards with samples that are ordered to be labeled again.
        counts: Samples of visible shards by status, and persons.
        checked_objects: Objects whose bytes were read and compared.
        checked_bytes: Their size.
        sample_fraction: The share of objects that were to be read.
        findings: What is wrong.
        orphans: Objects that nothing names, by kind; harmless.
        drift: How the input differs from the plan, or None where it was not looked at.
    """

    name: str
    output: str
    num_shards: int
    committed_shards: int
    missing_shards: tuple[str, ...]
    open_orders: int
    counts: Counts
    checked_objects: int
    checked_bytes: int
    sample_fraction: float
    findings: tuple[Finding, ...] = ()
    orphans: Mapping[str, Pile] = field(default_factory=dict)
    drift: Drift | None = None

    @property
    def damaged(self) -> bool:
        """Whether anything stored is wrong; unfinished is not damaged."""
        return bool(self.findings)

    @property
    def exit_code(self) -> int:
        """1 damaged, 3 the input drifted, 5 incomplete, 0 whole."""
        if self.damaged:
            return 1
        if self.drift is not None and (self.drift.changed or self.drift.missing):
            return 3
        return 5 if self.missing_shards or self.open_orders else 0

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        values = asdict(self)
        values["counts"] = self.counts.model_dump()
        return {**values, "damaged": self.damaged, "exit_code": self.exit_code}
