"""Turn the rows of a table into samples, whatever file the table came in.

A row's key is the column `spec.key`, else `__key__` or `key`, else the image's own path where the
caller says that it can be, else the row number. Several images of a row are `<key>/<number>` in a
list and `<key>/<column>` in columns. Reading the table is left to `sources.table_files`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sapiens_batch.records import Problem, Sample
from sapiens_batch.sources.columns import Columns, ImageColumn
from sapiens_batch.sources.fields import make_sample
from sapiens_batch.sources.image_files import read_images
from sapiens_batch.sources.img2dataset import SUCCESS, not_downloaded
from sapiens_batch.sources.selection import ShardSelection
from sapiens_batch.sources.table_files import Lost, TableBatch
from sapiens_batch.spec.job import SourceSpec


@dataclass(frozen=True, slots=True)
class _Image:
    """One image of a row: its bytes, or the path of its file, or neither.

    `suffix` follows the row's key: empty where the row has one image, else it begins with `/`.
    """

    content: bytes | None
    path: str | None
    suffix: str


@dataclass(slots=True)
class RowReader:
    """Turns the rows of one shard into samples, in order.

    Attributes:
        spec: The source section of the job.
        where: The shard's key, for messages.
        root: Folder that image paths are relative to.
        columns: What the columns mean.
        selection: Which samples to read.
        key_by_path: Whether an image's path is its key where no column is.
    """

    spec: SourceSpec
    where: str
    root: str
    columns: Columns
    selection: ShardSelection
    key_by_path: bool = False
    _keys: set[str] = field(default_factory=set)
    _failed: Counter[str] = field(default_factory=Counter)
    _index: int = 0

    def samples(self, batches: Iterator[TableBatch | Lost]) -> Iterator[Sample | Problem]:
        """All samples, then the damage of the shard; rows that were lost are quarantined."""
        damage: list[Problem] = []
        for item in batches:
            if isinstance(item, Lost):
                damage.append(Problem("source.corrupt", f"{self.where}: {item.message}"))
                for row in range(item.start, item.stop):
                    yield self._sample(str(row), row, damage[-1], {})
            else:
                yield from self._batch_samples(item)
        yield from damage
        if self._failed:
            yield not_downloaded(self.where, self._failed)
        yield from self.selection.problems()

    def _batch_samples(self, item: TableBatch) -> Iterator[Sample]:
        batch = item.batch
        images = self._row_images(batch)
        records = batch.select(list(self.columns.fields)).to_pylist()
        keys = self._row_keys(item, images)
        taken = [
            offset
            for offset, record in enumerate(records)
            if self._is_sample(batch, offset, images[offset])
            and self.selection.takes(keys[offset] or str(item.first_row + offset), record)
        ]
        fetched = self._fetched([images[offset] for offset in taken])
        for offset in taken:
            yield from self._row_samples(
                keys[offset], item.first_row + offset, images[offset], fetched, records[offset]
            )

    def _row_images(self, batch: pa.RecordBatch) -> list[list[_Image]]:
        columns = self.columns.images
        cells = [
            _cells(batch, column, f"/{column.name}" if len(columns) > 1 else "")
            for column in columns
        ]
        return [[image for cell in row for image in cell] for row in zip(*cells, strict=True)]

    def _row_keys(self, item: TableBatch, images: list[list[_Image]]) -> list[str | None]:
        """The key of each row; None where its column has none."""
        if self.columns.key is not None:
            values = item.batch.column(self.columns.key).to_pylist()
            return [None if value is None else str(value) for value in values]
        if self.key_by_path:
            return [row[0].path or None for row in images]
        return [str(item.first_row + offset) for offset in range(item.batch.num_rows)]

    def _is_sample(self, batch: pa.RecordBatch, offset: int, images: list[_Image]) -> bool:
        """False for a row whose download failed, which img2dataset writes all the same."""
        if self.columns.status is None:
            return True
        status = batch.column(self.columns.status)[offset].as_py()
        if status == SUCCESS or any(image.content is not None for image in images):
            return True
        self._failed[str(status)] += 1
        return False

    def _row_samples(
        self,
        key: str | None,
        row: int,
        images: list[_Image],
        fetched: dict[str | None, bytes | Problem],
        record: dict[str, Any],
    ) -> Iterator[Sample]:
        if problem := self._key_problem(key, row):
            yield self._sample(key or str(row), row, problem, record)
            return
        for image in images:
            content = image.content if image.content is not None else fetched.get(image.path)
            yield self._sample(f"{key}{image.suffix}", row, content, record)

    def _fetched(self, rows: list[list[_Image]]) -> dict[str | None, bytes | Problem]:
        """Contents of the images that the batch only has paths of, by path."""
        paths = [
            image.path for row in rows for image in row if image.content is None and image.path
        ]
        contents = read_images(self.root, paths, self.spec.storage_options)
        return dict(zip(paths, contents, strict=True))

    def _key_problem(self, key: str | None, row: int) -> Problem | None:
        if key is None:
            named = self.columns.key or self.columns.images[0].name
            message = f"{self.where}: row {row} has no key in {named!r}"
            return Problem("source.missing_key", message)
        if key in self._keys:
            message = f"{self.where}: row {row} has the key {key!r} of an earlier row"
            return Problem("source.duplicate_key", message)
        self._keys.add(key)
        return None

    def _sample(
        self, key: str, row: int, content: bytes | Problem | None, record: dict[str, Any]
    ) -> Sample:
        if content is None:
            named = ", ".join(repr(image.name) for image in self.columns.images)
            message = f"{self.where}: row {row} has no image in {named}"
            content = Problem("source.missing_image", message)
        self._index += 1
        return make_sample(key, self._index - 1, content, record, self.spec)


def _cells(batch: pa.RecordBatch, column: ImageColumn, name: str) -> Iterator[list[_Image]]:
    """The images of each row in one column; a cell without any gives one that is missing."""
    for cell in batch.column(column.name).to_pylist():
        if column.repeated:
            images = enumerate(cell or [None])
            yield [_image_of(value, f"{name}/{number}") for number, value in images]
        else:
            yield [_image_of(cell, name)]


def _image_of(value: Any, suffix: str) -> _Image:
    if isinstance(value, dict):
        return _Image(value.get("bytes"), value.get("path"), suffix)
    if isinstance(value, bytes):
        return _Image(value, None, suffix)
    return _Image(None, value, suffix)
