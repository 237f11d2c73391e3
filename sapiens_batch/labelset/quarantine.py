"""The quarantined samples of a job, from its committed tables.

Only shards whose commit counts a wanted reason are opened, so that a clean job costs no table read.
Labeling samples again is left to the pipeline.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import pyarrow.dataset as ds

from sapiens_batch.errors import InputError
from sapiens_batch.labelset.labels import select_rows
from sapiens_batch.protocol.commit import total_reasons
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.records import Level, Status

_COLUMNS = ("index", "key", "reason", "message")


@dataclass(frozen=True, slots=True)
class Quarantined:
    """One sample that could not be labeled: its place, why, and what mends it."""

    shard_id: str
    shard_key: str
    index: int
    key: str
    reason: str
    message: str


def quarantined(
    manifest: Manifest,
    *,
    reasons: Collection[str] | None = None,
    keys: Collection[str] | None = None,
) -> Iterator[Quarantined]:
    """Stream the quarantined samples of committed shards, by shard id and index.

    Args:
        manifest: The job.
        reasons: Only these; a name without its last part (`decode`) means all that start with it.
        keys: Only samples with these keys.

    Raises:
        ProtocolError: A commit or a table is damaged.
        StorageError: A table cannot be read.
    """
    wanted = ds.field("status") == str(Status.QUARANTINED)
    if keys is not None:
        wanted &= ds.field("key").isin(sorted(keys))
    for shard in manifest.summaries():
        if not any(matches(reason, reasons) for reason in shard.reasons):
            continue
        images = shard.tables[Level.IMAGE.table]
        table = select_rows(manifest.store, images, columns=_COLUMNS, wanted=wanted)
        for row in table.to_pylist():
            if matches(row["reason"], reasons):
                yield Quarantined(
                    shard_id=shard.shard_id,
                    shard_key=shard.shard_key,
                    index=row["index"],
                    key=row["key"],
                    reason=row["reason"],
                    message=row["message"] or "",
                )


def check_asked(
    manifest: Manifest,
    *,
    reasons: Collection[str] | None = None,
    keys: Collection[str] | None = None,
) -> None:
    """Check that what is asked for is the reason and the key of some quarantined sample.

    A job that has none at all passes: nothing is left of what was asked for.

    Raises:
        InputError: No sample has any of the reasons and keys; says which reasons there are.
        ProtocolError, StorageError: As for `quarantined`.
    """
    counts = total_reasons(manifest.summaries())
    if not counts:
        return
    there_are = ", ".join(f"{name} {number}" for name, number in counts.items())
    asked = " or ".join(map(repr, reasons or ()))
    if not any(matches(name, reasons) for name in counts):
        raise InputError(f"no quarantined sample has reason {asked}; there are {there_are}")
    if keys is not None and next(quarantined(manifest, reasons=reasons, keys=keys), None) is None:
        of = f"reason {asked} and " if asked else ""
        raise InputError(
            f"no quarantined sample has {of}key {' or '.join(map(repr, keys))}; there are "
            f"{there_are}, and `errors` lists their keys"
        )


def matches(reason: str, wanted: Collection[str] | None) -> bool:
    """Whether a reason is wanted; None wants all."""
    return wanted is None or any(reason == one or reason.startswith(f"{one}.") for one in wanted)
