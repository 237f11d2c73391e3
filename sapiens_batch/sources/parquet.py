"""Parquet: one row, one sample; image bytes, Hugging Face image structs, or paths to images.

Streams batches of projected columns, so memory does not grow with the row group. A sample's key is
the column `spec.key`, else `__key__` or `key`, else the image's own path where it is unique in the
shard, else the row number. Which column holds the image is decided by `sources.columns`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sapiens_batch.errors import InputError
from sapiens_batch.job.spec import SourceSpec
from sapiens_batch.records import Problem, Sample, Shard
from sapiens_batch.sources.base import Source
from sapiens_batch.sources.columns import Columns, ImageColumn, choose_columns
from sapiens_batch.sources.fields import bad_sample, make_sample
from sapiens_batch.sources.files import read_images
from sapiens_batch.sources.shards import check_object_version, object_shard
from sapiens_batch.storage.addresses import absolute_uri, parent_uri
from sapiens_batch.storage.inputs import expand, open_input
from sapiens_batch.storage.streams import InputStream

BATCH_ROWS = 32
"""Rows decoded at once: few enough that 32 camera images fit in a small worker."""

_READ_BUFFER_BYTES = 4 << 20


class ParquetSource(Source):
    """Parquet files with an image column, and optionally columns of keys, boxes and more."""

    def plan(self) -> Iterator[Shard]:
        """One shard per file, sorted by key; see `Source.plan`."""
        objects = expand(self.spec.uris, self.spec.storage_options)
        self._check_first(objects[0].uri)
        return map(object_shard, islice(objects, self.spec.limit))

    def read(self, shard: Shard) -> Iterator[Sample | Problem]:
        """Samples in row order, then the damage of the shard; see `Source.read`."""
        check_object_version(shard, self.spec.storage_options)
        root = absolute_uri(self.spec.root) if self.spec.root else parent_uri(shard.uri)
        with open_input(shard.uri, self.spec.storage_options) as stream:
            try:
                file = _open(stream)
                columns = choose_columns(file.schema_arrow, self.spec, shard.key)
            except (pa.ArrowException, OSError) as error:
                stream.raise_failure()
                yield Problem("source.corrupt", f"{shard.key}: no readable Parquet footer: {error}")
                return
            except InputError as error:
                yield Problem("source.missing_column", str(error))
                return
            yield from _Reader(self.spec, shard.key, root, columns).samples(file, stream)

    def _check_first(self, uri: str) -> None:
        """Refuse a corpus without the columns asked for; a damaged file is left to `read`."""
        with open_input(uri, self.spec.storage_options) as stream:
            try:
                schema = _open(stream).schema_arrow
            except (pa.ArrowException, OSError):
                stream.raise_failure()
                return
            choose_columns(schema, self.spec, uri)


@dataclass(frozen=True, slots=True)
class _Image:
    content: bytes | None
    path: str | None


class _Reader:
    """Turns the rows of one file into samples.

    Args:
        spec: The source section of the job.
        where: The shard's key, for messages.
        root: Folder that image paths are relative to.
        columns: What to read.
    """

    def __init__(self, spec: SourceSpec, where: str, root: str, columns: Columns) -> None:
        self._spec = spec
        self._where = where
        self._root = root
        self._columns = columns
        self._keys: set[str] = set()
        self._index = 0

    def samples(self, file: pq.ParquetFile, stream: InputStream) -> Iterator[Sample | Problem]:
        """All samples; the rows of a damaged row group become quarantined ones."""
        by_path = self._columns.key is None and self._paths_are_unique(file)
        stream.raise_failure()
        damage: list[Problem] = []
        first_row = 0
        for group in range(file.num_row_groups):
            row, stop = first_row, first_row + file.metadata.row_group(group).num_rows
            for batch in self._batches(file, stream, group):
                if isinstance(batch, Problem):
                    damage.append(batch)
                    for lost in range(row, stop):
                        yield self._bad(str(lost), batch.reason, batch.message)
                    break
                yield from self._batch_samples(batch, row, by_path)
                row += batch.num_rows
            first_row = stop
        yield from damage

    def _batches(
        self, file: pq.ParquetFile, stream: InputStream, group: int
    ) -> Iterator[pa.RecordBatch | Problem]:
        try:
            yield from file.iter_batches(
                BATCH_ROWS, row_groups=[group], columns=self._columns.projected
            )
        except (pa.ArrowException, OSError) as error:
            stream.raise_failure()
            message = f"{self._where}: row group {group} is damaged: {error}"
            yield Problem("source.corrupt", message)

    def _batch_samples(
        self, batch: pa.RecordBatch, first_row: int, by_path: bool
    ) -> Iterator[Sample]:
        cells = batch.column(self._columns.image.name).to_pylist()
        images = [_images_of(cell, self._columns.image) for cell in cells]
        fetched = self._fetched(images)
        records = batch.select(list(self._columns.fields)).to_pylist()
        keys = batch.column(self._columns.key).to_pylist() if self._columns.key else None
        for offset, (row_images, record) in enumerate(zip(images, records, strict=True)):
            row = first_row + offset
            if keys is not None:
                key = None if keys[offset] is None else str(keys[offset])
            else:
                key = row_images[0].path if by_path else str(row)
            if problem := self._key_problem(key, row):
                yield self._bad(key or str(row), problem.reason, problem.message)
                continue
            for number, image in enumerate(row_images):
                name = f"{key}/{number}" if self._columns.image.repeated else str(key)
                content = image.content if image.content is not None else fetched.get(image.path)
                yield self._sample(name, row, content, record)

    def _fetched(self, images: list[list[_Image]]) -> dict[str | None, bytes | Problem]:
        """Contents of the images that the batch only has paths of, by path."""
        paths = [
            image.path for row in images for image in row if image.content is None and image.path
        ]
        contents = read_images(self._root, paths, self._spec.storage_options)
        return dict(zip(paths, contents, strict=True))

    def _key_problem(self, key: str | None, row: int) -> Problem | None:
        if key is None:
            message = f"{self._where}: row {row} has no key in {self._columns.key!r}"
            return Problem("source.missing_key", message)
        if key in self._keys:
            message = f"{self._where}: row {row} has the key {key!r} of an earlier row"
            return Problem("source.duplicate_key", message)
        self._keys.add(key)
        return None

    def _sample(
        self, key: str, row: int, content: bytes | Problem | None, record: dict[str, Any]
    ) -> Sample:
        if content is None:
            message = f"{self._where}: row {row} has no image in {self._columns.image.name!r}"
            content = Problem("source.missing_image", message)
        if isinstance(content, Problem):
            return self._bad(key, content.reason, content.message)
        sample = make_sample(key, self._index, content, record, self._spec)
        self._index += 1
        return sample

    def _bad(self, key: str, reason: str, message: str) -> Sample:
        sample = bad_sample(key, self._index, reason, message)
        self._index += 1
        return sample

    def _paths_are_unique(self, file: pq.ParquetFile) -> bool:
        """Whether every row has an image path of its own, so that it can be the key."""
        image = self._columns.image
        if image.repeated or image.kind == "bytes":
            return False
        leaf = image.name if image.kind == "path" else f"{image.name}.path"
        try:
            column = file.read(columns=[leaf]).column(0)
        except (pa.ArrowException, OSError, IndexError):
            return False
        if image.kind == "struct":
            column = pc.struct_field(column, "path")
        distinct = pc.count_distinct(column, mode="all").as_py()
        return column.null_count == 0 and distinct == len(column)


def _open(stream: InputStream) -> pq.ParquetFile:
    return pq.ParquetFile(
        cast("IO[bytes]", stream), buffer_size=_READ_BUFFER_BYTES, pre_buffer=False
    )


def _images_of(cell: Any, column: ImageColumn) -> list[_Image]:
    """The images of one cell; a cell without any gives one that is missing."""
    values = cell if column.repeated and cell else [None] if column.repeated else [cell]
    return [_image_of(value) for value in values]


def _image_of(value: Any) -> _Image:
    if isinstance(value, dict):
        return _Image(value.get("bytes"), value.get("path"))
    if isinstance(value, bytes):
        return _Image(value, None)
    return _Image(None, value)
