"""DataComp subsets, read back as the selection that a job takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sapiens_batch.errors import InputError
from sapiens_batch.export import ExportRequest, export_labels
from sapiens_batch.export.base import ExportOptions, Labeled, Made, ShardToExport
from sapiens_batch.export.datacomp import DataCompExporter
from sapiens_batch.export.documents import ShardReceipt
from sapiens_batch.export.provenance import provenance
from sapiens_batch.labelset import LabelSet, SampleLabels
from sapiens_batch.protocol.documents import StoredObject
from sapiens_batch.sources.selection import load_selection
from sapiens_batch.spec.job import SourceSpec

SHARDS = (
    ("ffffffffffffffff0000000000000000", "0000000000000001ffffffffffffffff"),
    (),
    ("00000000000000010000000000000002",),
)


class Shards:
    """Finished shards of which the pieces are at hand."""

    def __init__(self, made: list[list[Made]]) -> None:
        self._made = [[(one, bytes(one.data)) for one in shard] for shard in made]
        self.num_shards = len(made)

    def receipts(self) -> Iterator[ShardReceipt]:
        for number, shard in enumerate(self._made):
            objects = tuple(
                StoredObject.describe(one.key, data, rows=one.rows) for one, data in shard
            )
            yield ShardReceipt(number=number, shard_id="0" * 32, samples=0, objects=objects)

    def pieces(self, name: str) -> Iterator[Iterator[bytes]]:
        for shard in self._made:
            yield from (iter([data]) for one, data in shard if one.key.endswith(name))


def exported(labels: LabelSet) -> Made:
    exporter = DataCompExporter(labels, ExportOptions(), provenance(labels.job, labels.schemas))
    made = [
        list(exporter.shard(ShardToExport(number, [_labeled(uid) for uid in uids])))
        for number, uids in enumerate(SHARDS)
    ]
    return next(exporter.finish(Shards(made)))


def test_uids_of_all_shards_are_sorted_pairs_of_halves(labels: LabelSet, tmp_path: Path) -> None:
    made = exported(labels)
    assert (made.key, made.rows) == ("uids.npy", 3)
    path = tmp_path / "uids.npy"
    path.write_bytes(made.data)
    values = np.load(path)
    assert values.dtype == np.dtype("u8,u8")
    assert values.tolist() == [(1, 2), (1, 2**64 - 1), (2**64 - 1, 0)]


def test_a_job_takes_the_file_as_its_selection(labels: LabelSet, tmp_path: Path) -> None:
    path = tmp_path / "uids.npy"
    path.write_bytes(exported(labels).data)
    spec = SourceSpec(format="webdataset", uri="x.tar", select=str(path))
    selection = load_selection(spec)
    assert selection is not None
    assert all(uid in selection for uids in SHARDS for uid in uids)
    assert "00000000000000010000000000000003" not in selection


def test_keys_that_are_no_uids_are_refused_with_a_way_out(job: Path, tmp_path: Path) -> None:
    request = ExportRequest(str(job), str(tmp_path / "out"), {})
    with pytest.raises(InputError, match=r"source\.columns"):
        export_labels("datacomp", request)


def _labeled(uid: str) -> Labeled:
    row: dict[str, Any] = {"key": uid}
    return Labeled(SampleLabels(row, (), {}, {}), uid, 0, None)
