"""The samples of one shard, streamed: rows in windows, arrays when asked for, photos beside them.

Which samples are wanted is decided by `choice`. Memory holds one window of table rows, one array
object a task and one photo, however large the shard is. Names of objects are made from keys:
readable, unique where keys are, and safe in every store; the exact key stays in the records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow.dataset as ds

from sapiens_batch.export.base import Labeled
from sapiens_batch.export.pictures import Picture, match_pictures
from sapiens_batch.labelset import LabelSet
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.records import Array, Shard
from sapiens_batch.sources.lookup import iter_encoded

WINDOW_SAMPLES = 4096
"""Rows of 308 keypoints take 4 kB: a window of them is about 20 MB."""


MAX_PART_BYTES = 160
"""Leaves room for suffixes below the 255 bytes that file systems allow."""

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class SampleReader:
    """Streams chosen samples of a job, with their photos where these are asked for."""

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
        self._arrays = labels.arrays(whole_objects=True)

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
        wanted_photos = {shard.shard_id: indices.tolist()}
        options = self._source_options
        encoded = iter_encoded(self._job, [shard], wanted_photos, storage_options=options)
        index = ds.field("index")
        for window in _windows(indices):
            inside = (index >= int(window[0])) & (index <= int(window[-1]))
            wanted = inside & index.isin(window.tolist())
            samples = list(self._labels.shard_samples(shard.shard_id, wanted, self._arrays))
            photos: Iterator[Picture | None] = repeat(None, len(samples))
            if self._pictures:
                photos = match_pictures((one.row for one in samples), encoded)
            for labels, photo in zip(samples, photos, strict=True):
                at = int(labels.row["index"])
                yield Labeled(labels, names.name(labels.row["key"], at), first + at, photo)


def _windows(indices: Array) -> Iterator[Array]:
    """Ascending indices in groups that span at most `WINDOW_SAMPLES` samples."""
    start = 0
    while start < len(indices):
        stop = int(np.searchsorted(indices, indices[start] + WINDOW_SAMPLES))
        yield indices[start:stop]
        start = stop


def safe_name(key: str) -> str:
    """The key with every letter but `A-Za-z0-9_-/` written as `~` and its hex code points.

    There is no dot in it, because WebDataset ends a sample's name at the first one.
    """
    parts = key.split("/")
    if not all(parts):
        parts = [key]
    return "/".join(_safe_part(part) for part in parts) or "~"


class UniqueNames:
    """Safe names for the samples of one shard; the second of equal keys gets its index."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def name(self, key: str, index: int) -> str:
        """A name that no other sample of the shard has."""
        name = safe_name(key)
        if name in self._taken:
            name = f"{name}~{index}"
        self._taken.add(name)
        return name


def _safe_part(part: str) -> str:
    safe = "".join(letter if letter in _PLAIN else f"~{ord(letter):x}~" for letter in part)
    if len(safe) <= MAX_PART_BYTES:
        return safe
    digest = hashlib.sha256(part.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return f"{safe[: MAX_PART_BYTES - 17]}~{digest}"
