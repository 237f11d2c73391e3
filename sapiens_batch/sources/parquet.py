"""Parquet: one row, one sample; image bytes, Hugging Face image structs, or paths to images.

Each file is a shard and is streamed. Which column holds the image is decided by `sources.columns`,
what becomes of a row by `sources.rows`. Sources that end up at table files of their own (Hugging
Face, Delta, Iceberg) only plan differently.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from sapiens_batch.errors import InputError
from sapiens_batch.records import Problem, Sample, Shard
from sapiens_batch.sources.base import Source
from sapiens_batch.sources.columns import Columns, choose_columns
from sapiens_batch.sources.rows import RowReader
from sapiens_batch.sources.selection import ShardSelection
from sapiens_batch.sources.shards import check_version, object_shard
from sapiens_batch.sources.table_files import DamagedTableError, Table, open_table
from sapiens_batch.storage.addresses import parent_uri
from sapiens_batch.storage.input_errors import errors_of_field
from sapiens_batch.storage.inputs import InputObject, expand
from sapiens_batch.storage.reading import open_input


class ParquetSource(Source):
    """Parquet files with image columns, and optionally columns of keys, boxes and more."""

    def plan(self) -> Iterator[Shard]:
        """One shard per file, sorted by key; see `Source.plan`."""
        objects = self.objects()
        self.check_columns(objects[0].uri)
        selected = ShardSelection(self.spec, "").digest
        return (object_shard(item, selected) for item in islice(objects, self.spec.limit))

    def objects(self) -> list[InputObject]:
        """The table files, sorted by key.

        Raises:
            InputError: There is none, or they cannot be listed.
        """
        with errors_of_field("source.uri"):
            return expand(self.spec.uris, self.spec.storage_options, instead="'{}/*.parquet'")

    def read(self, shard: Shard) -> Iterator[Sample | Problem]:
        """Samples in row order, then the damage of the shard; see `Source.read`."""
        selection = ShardSelection(self.spec, shard.key)
        with open_input(shard.uri, self.spec.storage_options) as stream:
            check_version(shard, stream.version, selection.digest)
            try:
                table = open_table(stream, shard.key)
                columns = choose_columns(table.schema, self.spec, shard.key, selection.by)
            except DamagedTableError as error:
                yield Problem("source.corrupt", str(error))
                return
            except InputError as error:
                yield Problem("source.missing_column", str(error))
                return
            root, by_path = self.root(parent_uri(shard.uri)), _paths_are_unique(table, columns)
            reader = RowReader(self.spec, shard.key, root, columns, selection, key_by_path=by_path)
            yield from reader.samples(table.batches(columns.projected))

    def check_columns(self, uri: str) -> None:
        """Refuse a corpus without the columns asked for; a damaged file is left to `read`.

        Raises:
            InputError: The file at `uri` lacks a column.
        """
        with open_input(uri, self.spec.storage_options) as stream:
            try:
                schema = open_table(stream, uri).schema
            except DamagedTableError:
                return
            choose_columns(schema, self.spec, uri, ShardSelection(self.spec, uri).by)


def _paths_are_unique(table: Table, columns: Columns) -> bool:
    """Whether every row has an image path of its own, so that it can be the key."""
    image = columns.images[0]
    if columns.key is not None or columns.several or image.kind == "bytes":
        return False
    return table.paths_are_unique(image.name, "path" if image.kind == "struct" else None)
