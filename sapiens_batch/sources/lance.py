"""Lance: the fragments of one version of a dataset, each a shard.

The lance library reads everything, with `catalog_options` as its storage options. A shard's address
pins the dataset's version, so that compaction during a job changes nothing; its own version is made
of the fragment's files, so that an append leaves the planned shards alone. A failure of the library
is raised, because it does not tell damage from a failing store.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from itertools import islice
from typing import Any

from sapiens_batch.errors import InputError
from sapiens_batch.records import Problem, Sample, Shard
from sapiens_batch.sources.base import Source
from sapiens_batch.sources.columns import choose_columns
from sapiens_batch.sources.libraries import load_library
from sapiens_batch.sources.rows import RowReader
from sapiens_batch.sources.selection import ShardSelection
from sapiens_batch.sources.shards import check_version, digest, joined_version, make_shard_id
from sapiens_batch.sources.table_files import BATCH_ROWS, Lost, TableBatch

READ_AHEAD_BATCHES = 2
"""The library's 16 would hold 512 images."""


class LanceSource(Source):
    """One Lance dataset at `snapshot`, or at its newest version when planned."""

    def plan(self) -> Iterator[Shard]:
        """One shard per fragment, sorted by key; see `Source.plan`."""
        uri = self.only_uri("dataset")
        dataset = self._open(uri, self.spec.snapshot)
        selection = ShardSelection(self.spec, uri)
        choose_columns(_scanner(dataset).projected_schema, self.spec, uri, selection.by)
        fragments = sorted(dataset.get_fragments(), key=lambda item: int(item.fragment_id))
        for fragment in islice(fragments, self.spec.limit):
            key = f"{posixpath.basename(uri)}/fragment-{fragment.fragment_id:09d}"
            version = joined_version(_version(fragment), selection.digest)
            size_bytes = sum(file.file_size_bytes or 0 for file in fragment.data_files())
            shard_id = make_shard_id(key, version)
            yield Shard(shard_id, key, f"{uri}@{dataset.version}", version, size_bytes)

    def read(self, shard: Shard) -> Iterator[Sample | Problem]:
        """Samples in row order, without deleted rows; see `Source.read`."""
        uri, _, number = shard.uri.rpartition("@")
        fragment_id = int(shard.key.rpartition("-")[2])
        fragment = self._open(uri, int(number)).get_fragment(fragment_id)
        selection = ShardSelection(self.spec, shard.key)
        if fragment is None:
            raise InputError(f"{shard.uri} has no fragment {fragment_id}: it was planned elsewhere")
        check_version(shard, _version(fragment), selection.digest)
        schema = _scanner(fragment).projected_schema
        columns = choose_columns(schema, self.spec, shard.key, selection.by)
        reader = RowReader(self.spec, shard.key, self.root(uri), columns, selection)
        yield from reader.samples(_batches(fragment, columns.projected))

    def _open(self, uri: str, version: int | None) -> Any:
        lance = load_library("lance", extra="lance")
        try:
            return lance.dataset(
                uri, version=version, storage_options=self.spec.catalog_options or None
            )
        except (ValueError, OSError) as error:
            raise InputError(f"{uri} is no readable Lance dataset: {error}") from error


def _version(fragment: Any) -> str:
    """Changes with every change of the fragment's rows or columns."""
    files = [f"{file.path} {file.file_size_bytes}" for file in fragment.data_files()]
    return digest([*files, str(fragment.deletion_file() or "")])


def _scanner(source: Any, columns: list[str] | None = None) -> Any:
    """A scan in which blob columns are bytes."""
    return source.scanner(
        columns=columns,
        batch_size=BATCH_ROWS,
        batch_readahead=READ_AHEAD_BATCHES,
        blob_handling="all_binary",
    )


def _batches(fragment: Any, columns: list[str]) -> Iterator[TableBatch | Lost]:
    row = 0
    for batch in _scanner(fragment, columns).to_batches():
        yield TableBatch(row, batch)
        row += batch.num_rows
