"""Apache Iceberg: the data files of one snapshot of a table, each a shard.

The pyiceberg library reads catalog and metadata, the files are read as Parquet. They never change
once written, so an append gives new shards and leaves the planned ones alone. Rows that delete
files hide, and files that are not Parquet, are refused. A column goes by the name that it had when
the file was written.
"""

from __future__ import annotations

from typing import Any

from sapiens_batch.errors import InputError
from sapiens_batch.sources.libraries import load_library
from sapiens_batch.sources.parquet import ParquetSource
from sapiens_batch.sources.shards import data_files
from sapiens_batch.storage.inputs import InputObject

_SCHEME = "iceberg://"


class IcebergSource(ParquetSource):
    """One table, named by a `.metadata.json` file or as `iceberg://<catalog>/<namespace>.<table>`.

    A catalog is configured by `catalog_options`, or as pyiceberg finds it (`.pyiceberg.yaml`).
    """

    def objects(self) -> list[InputObject]:
        """The data files of the snapshot, sorted by key; see `ParquetSource.objects`."""
        load_library("pyiceberg", extra="iceberg")
        uri = self.only_uri("table")
        exceptions = load_library("pyiceberg.exceptions", extra="iceberg")
        try:
            table = self._table(uri)
            if self.spec.snapshot and table.snapshot_by_id(self.spec.snapshot) is None:
                known = ", ".join(str(item.snapshot_id) for item in table.snapshots()[-5:])
                raise InputError(f"{uri} has no snapshot {self.spec.snapshot}; the last: {known}")
            tasks = list(table.scan(snapshot_id=self.spec.snapshot).plan_files())
        except (OSError, ValueError, exceptions.NoSuchTableError, exceptions.RESTError) as error:
            raise InputError(f"{uri} is no readable Iceberg table: {error}") from error
        for task in tasks:
            if task.delete_files or str(task.file.file_format) != "FileFormat.PARQUET":
                raise InputError(
                    f"{uri}: {task.file.file_path} has delete files or is no Parquet: compact the "
                    "table first (`rewrite_data_files`)"
                )
        uris = [task.file.file_path for task in tasks]
        return data_files(table.location(), uris, self.spec.storage_options)

    def _table(self, uri: str) -> Any:
        if not uri.startswith(_SCHEME):
            tables = load_library("pyiceberg.table", extra="iceberg")
            return tables.StaticTable.from_metadata(uri, dict(self.spec.catalog_options))
        name, _, identifier = uri.removeprefix(_SCHEME).partition("/")
        catalogs = load_library("pyiceberg.catalog", extra="iceberg")
        return catalogs.load_catalog(name, **self.spec.catalog_options).load_table(identifier)
