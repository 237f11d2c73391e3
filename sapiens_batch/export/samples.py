"""The samples of one shard, streamed: rows in windows, arrays when asked for, photos beside them.

Which samples are wanted is decided by `choice`. Memory holds one window of table rows, one array
object a task and one photo, however large the shard is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from sapiens_batch.export.base import Labeled
from sapiens_batch.export.names import UniqueNames
from sapiens_batch.export.pictures import Picture, match_pictures
from sapiens_batch.labelset import LabelArray, LabelSet, SampleLabels
from sapiens_batch.labelset.sample import table_rows
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.records import Array, Shard
from sapiens_batch.sources.lookup import iter_encoded

WINDOW_SAMPLES = 4096
"""Rows of 308 keypoints take 4 kB: a window of them is about 20 MB."""


class SampleReader:
    """Streams chosen samples of a job.

    Args:
        manifest: The job.
        labels: Its labels.
        pictures: Whether to fetch the photos.
        source_options: What the source's storage needs, passed to fsspec.
    """

    def __init__(
        self,
        manifest: Manifest,
        labels: LabelSet,
        *,
        pictures: bool,
        source_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._labels = labels
        self._job = manifest.job
        self._pictures = pictures
        self._source_options = source_options
        self._arrays = {
            task: LabelArray(manifest.store, schema, labels.commits, whole_objects=True)
            for task, schema in labels.schemas.items()
            if schema.array is not None
        }

    def read(self, shard: Shard, indices: Array, first: int) -> Iterator[Labeled]:
        """The samples of a shard at the given indices, in order.

        Args:
            shard: The planned shard.
            indices: (n,) ascending.
            first: Number of the shard's first sample in the export.

        Raises:
            InputError: A photo is wanted that the source no longer has.
        """
        names = UniqueNames()
        found = self._found(shard, indices)
        for window in _windows(indices):
            images = table_rows(self._rows(self._labels.images, shard.shard_id, window))
            images.sort(key=lambda row: int(row["index"]))
            persons = self._persons(shard.shard_id, window)
            photos: Iterator[Picture | None] = (
                (None for _ in images) if found is None else match_pictures(images, found)
            )
            for row, photo in zip(images, photos, strict=True):
                index = int(row["index"])
                owned = tuple(persons.get(index, ()))
                labels = SampleLabels(row, owned, self._labels.schemas, self._arrays)
                yield Labeled(labels, names.name(row["key"], index), first + index, photo)

    def _found(self, shard: Shard, indices: Array) -> Iterator[Any] | None:
        if not self._pictures:
            return None
        return iter_encoded(
            self._job,
            [shard],
            {shard.shard_id: indices.tolist()},
            storage_options=self._source_options,
        )

    def _persons(self, shard_id: str, window: Array) -> dict[int, list[dict[str, Any]]]:
        """Rows of `persons` by index of the sample, each list by person."""
        rows = table_rows(self._rows(self._labels.persons, shard_id, window))
        rows.sort(key=lambda row: (int(row["index"]), int(row["person"])))
        found: dict[int, list[dict[str, Any]]] = {}
        for row in rows:
            found.setdefault(int(row["index"]), []).append(row)
        return found

    def _rows(self, dataset: ds.Dataset, shard_id: str, window: Array) -> pa.Table:
        index = ds.field("index")
        inside = (index >= int(window[0])) & (index <= int(window[-1]))
        table = dataset.to_table(filter=(ds.field("shard_id") == shard_id) & inside)
        return table.filter(pa.array(np.isin(table["index"].to_numpy(), window)))


def _windows(indices: Array) -> Iterator[Array]:
    """Ascending indices in groups that span at most `WINDOW_SAMPLES` samples."""
    start = 0
    while start < len(indices):
        stop = int(np.searchsorted(indices, indices[start] + WINDOW_SAMPLES))
        yield indices[start:stop]
        start = stop
