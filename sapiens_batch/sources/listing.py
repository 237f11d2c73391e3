"""Listings of image paths or addresses: text with one a line, or CSV and Parquet with more columns.

A line of text is the sample's key, byte for byte; in a table it is the column `spec.key`, else the
path. Images are not looked up while planning, which would take a request each: a line whose file is
gone becomes a quarantined sample, and a file that changed behind the same name is not noticed.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from itertools import chain, islice

import pyarrow as pa

from sapiens_batch.errors import InputError
from sapiens_batch.records import Problem, Sample, Shard
from sapiens_batch.sources.base import Source
from sapiens_batch.sources.columns import Columns, choose_columns
from sapiens_batch.sources.fields import make_sample
from sapiens_batch.sources.image_files import iter_images
from sapiens_batch.sources.rows import RowReader
from sapiens_batch.sources.selection import ShardSelection
from sapiens_batch.sources.shards import (
    check_version,
    joined_version,
    make_shard_id,
    slice_shards,
)
from sapiens_batch.sources.table_files import open_table
from sapiens_batch.spec.job import SourceSpec
from sapiens_batch.storage.addresses import parent_uri
from sapiens_batch.storage.input_errors import errors_of_field
from sapiens_batch.storage.inputs import InputObject, expand
from sapiens_batch.storage.reading import open_input

_TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")
_INSTEAD = (
    "the file that lists the images, such as '{}/images.txt', or `format: images` for the folder "
    "itself"
)
_URI_NAMES = ("url", "uri", "image_path", "path", "file_name", "image")
_ROWS = re.compile(r"\[(\d+):(\d+)\]$")


class ListingSource(Source):
    """Relative paths, absolute paths or addresses of any scheme; blank lines do not count."""

    def plan(self) -> Iterator[Shard]:
        """One shard per `shard_samples` lines or rows, listing by listing; see `Source.plan`."""
        with errors_of_field("source.uri"):
            listings = expand(self.spec.uris, self.spec.storage_options, instead=_INSTEAD)
        shards = chain.from_iterable(map(self._slices, listings))
        return islice(shards, self.spec.limit)

    def read(self, shard: Shard) -> Iterator[Sample | Problem]:
        """Samples in the order of the listing; one that repeats is quarantined."""
        if not shard.members:
            yield from self._read_rows(shard)
            return
        seen: set[str] = set()
        for index, (name, content) in enumerate(iter_images(shard, self.spec.storage_options)):
            if name in seen:
                message = f"{shard.key}: line {name!r} is repeated"
                content = Problem("source.duplicate_key", message)
            yield make_sample(name, index, content, {}, self.spec)
            seen.add(name)

    def _slices(self, listing: InputObject) -> Iterator[Shard]:
        if listing.uri.lower().endswith(_TABLE_SUFFIXES):
            return self._row_slices(listing)
        selection = ShardSelection(self.spec, listing.key)
        names = (name for name in self._lines(listing) if selection.takes(name, {}))
        return slice_shards(self.root(parent_uri(listing.uri)), names, self.spec.shard_samples)

    def _row_slices(self, listing: InputObject) -> Iterator[Shard]:
        """Ranges of rows: their content is not held by the plan, which would be as large."""
        selection = ShardSelection(self.spec, listing.key)
        with open_input(listing.uri, self.spec.storage_options) as stream:
            table = open_table(stream, listing.uri)
            choose_listing_columns(table.schema, self.spec, listing.uri, selection.by)
            num_rows = table.num_rows()
        version = joined_version(listing.version, selection.digest)
        for start in range(0, num_rows, self.spec.shard_samples):
            stop = min(start + self.spec.shard_samples, num_rows)
            key = f"{listing.key}[{start:09d}:{stop:09d}]"
            yield Shard(make_shard_id(key, version), key, listing.uri, version, 0)

    def _read_rows(self, shard: Shard) -> Iterator[Sample | Problem]:
        start, stop = _row_range(shard.key)
        selection = ShardSelection(self.spec, shard.key)
        with open_input(shard.uri, self.spec.storage_options) as stream:
            check_version(shard, stream.version, selection.digest)
            table = open_table(stream, shard.uri)
            columns = choose_listing_columns(table.schema, self.spec, shard.key, selection.by)
            root = self.root(parent_uri(shard.uri))
            reader = RowReader(self.spec, shard.key, root, columns, selection, key_by_path=True)
            yield from reader.samples(table.batches(columns.projected, start, stop))

    def _lines(self, listing: InputObject) -> Iterator[str]:
        with open_input(listing.uri, self.spec.storage_options) as stream:
            text = io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8-sig", newline=None)
            try:
                for line in text:
                    if name := line.rstrip("\n"):
                        yield name
            except UnicodeDecodeError as error:
                raise InputError(f"{listing.uri} is not UTF-8 text: {error}") from error


def choose_listing_columns(
    schema: pa.Schema, spec: SourceSpec, where: str, select_by: str | None
) -> Columns:
    """As `choose_columns`; the image is the column of addresses.

    Raises:
        InputError: A column is missing, or it is not clear which holds the addresses.
    """
    names = [name for name in _URI_NAMES if name in schema.names] or schema.names[:1]
    named = spec.uri_column or (names[0] if len(names) == 1 else None)
    if named is None:
        raise InputError(
            f"{where} has several columns that could be addresses ({', '.join(names)}): "
            f"name one, such as `uri_column: {names[0]}`"
        )
    return choose_columns(schema, spec.model_copy(update={"image": [named]}), where, select_by)


def _row_range(key: str) -> tuple[int, int]:
    match = _ROWS.search(key)
    if match is None:
        raise InputError(f"{key} is no part of a listing: was the format changed after planning?")
    return int(match[1]), int(match[2])
