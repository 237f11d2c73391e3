"""DataComp: the sorted .npy of 128-bit uids that its resharder takes as a subset.

A uid is the sample's key where that is 32 hex digits, else the source column `uid`. All uids are
sorted in a temporary file; memory holds those of one shard.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from sapiens_batch.errors import InputError
from sapiens_batch.export import documents
from sapiens_batch.export.base import Exporter, ExportOptions, Made, ShardToExport
from sapiens_batch.sources.selection import uid_pair

PAIR: Final = np.dtype("u8,u8")


class DataCompExporter(Exporter[ExportOptions]):
    """`uids.npy`: which samples, and nothing about them."""

    name = "datacomp"
    options_type = ExportOptions

    def shard(self, shard: ShardToExport) -> Iterator[Made]:
        """The uids of a shard."""
        pairs = [_uid(sample.labels.row) for sample in shard.samples]
        if pairs:
            data = np.array(pairs, PAIR).tobytes()
            yield Made(documents.piece(shard.number, "uids"), data, len(pairs))

    def finish(self, finished: documents.Finished) -> Iterator[Made]:
        """All uids in order."""
        count = sum(stored.rows for one in finished.receipts() for stored in one.objects)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "uids.npy"
            values = np.lib.format.open_memmap(path, "w+", PAIR, (count,))
            start = 0
            for piece in finished.pieces("uids"):
                found = np.frombuffer(b"".join(piece), PAIR)
                values[start : start + len(found)] = found
                start += len(found)
            values.sort()
            values.flush()
            yield Made("uids.npy", np.memmap(path, np.uint8, "r").data, count)


def _uid(row: Any) -> tuple[int, int]:
    for text in (row["key"], row.get("uid")):
        if text is not None and (pair := uid_pair(text)) is not None:
            return pair
    raise InputError(
        f"sample {row['key']!r} has no DataComp uid: its key is not 32 hex digits, nor has it a "
        "column `uid`; add the column to `source.columns` of the job, or export another format"
    )
