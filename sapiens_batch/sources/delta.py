"""Delta Lake: the data files of one version of a table, each a shard.

The deltalake library reads the log, the files are read as Parquet. They never change once written,
so an append gives new shards and leaves the planned ones alone. What the files alone do not tell
(deleted rows, renamed columns) is refused, and partition columns, which are not in the files, are
not offered.
"""

from __future__ import annotations

from sapiens_batch.errors import InputError
from sapiens_batch.sources.libraries import load_library
from sapiens_batch.sources.parquet import ParquetSource
from sapiens_batch.sources.shards import data_files
from sapiens_batch.storage.inputs import InputObject


class DeltaSource(ParquetSource):
    """One Delta table at `snapshot`, or at its newest version when planned."""

    def objects(self) -> list[InputObject]:
        """The data files of the version, sorted by key; see `ParquetSource.objects`."""
        deltalake = load_library("deltalake", extra="delta")
        uri = self.only_uri("table")
        try:
            table = deltalake.DeltaTable(
                uri, version=self.spec.snapshot, storage_options=self.spec.catalog_options or None
            )
            mapping = table.metadata().configuration.get("delta.columnMapping.mode", "none")
            num_deleting = sum(batch.num_rows for batch in table.deletion_vectors())
            uris = table.file_uris()
        except (deltalake.exceptions.DeltaError, OSError, ValueError) as error:
            raise InputError(f"{uri} is no readable Delta table: {error}") from error
        if num_deleting:
            raise InputError(
                f"{uri}: deletion vectors hide rows of {num_deleting} files: rewrite them first "
                "(`REORG TABLE … APPLY (PURGE)`), or name an older `snapshot`"
            )
        if mapping != "none":
            raise InputError(
                f"{uri} maps column names ({mapping}): rewrite it without column mapping"
            )
        return data_files(uri, uris, self.spec.storage_options)
