"""One job's labels as a whole: datasets, arrays, look-up by key.

What a sample's labels look like is left to `sample`. The set of visible shards is fixed when the
job is opened; open it again to see more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from sapiens_batch.errors import InputError
from sapiens_batch.job.commit import Commit
from sapiens_batch.job.manifest import JobDocument, Manifest
from sapiens_batch.labelset.arrays import LabelArray
from sapiens_batch.labelset.sample import SampleLabels, table_rows
from sapiens_batch.records import LabelSchema, Level
from sapiens_batch.sinks.parquet import table_schema
from sapiens_batch.storage import open_store
from sapiens_batch.storage.arrow import arrow_filesystem


def open_labels(uri: str, storage_options: Mapping[str, Any] | None = None) -> LabelSet:
    """Open a job directory for reading.

    Args:
        uri: Path or fsspec address of the job directory.
        storage_options: Passed to fsspec.

    Raises:
        StorageError: There is no job, or it cannot be read.
        ProtocolError: A document is damaged.
    """
    return LabelSet(Manifest.open(open_store(uri, storage_options)))


class LabelSet:
    """The committed labels of one job.

    Args:
        manifest: The job; its commits are read now.

    Attributes:
        job: The job's document.
        commits: Committed shards by id.
        schemas: Label schemas by task.
        images: One row per sample, sorted within each shard.
        persons: One row per person.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._store = manifest.store
        self.job: JobDocument = manifest.job
        self.commits: Mapping[str, Commit] = {one.shard_id: one for one in manifest.commits()}
        self.schemas: Mapping[str, LabelSchema] = {
            schema.task: schema for schema in manifest.job.label_schemas
        }
        self.images: ds.Dataset = self._dataset(Level.IMAGE)
        self.persons: ds.Dataset = self._dataset(Level.PERSON)

    def __repr__(self) -> str:
        return f"LabelSet({self._store.uri!r}, {len(self.commits)} shards)"

    def array(self, task: str) -> LabelArray:
        """The dense array of a task.

        Raises:
            KeyError: The job has no such task.
            ValueError: The task has no array.
        """
        if task not in self.schemas:
            raise KeyError(f"job {self.job.name!r} has tasks {sorted(self.schemas)}, not {task!r}")
        return LabelArray(self._store, self.schemas[task], self.commits)

    def sample(
        self, key: str, shard_id: str | None = None, index: int | None = None
    ) -> SampleLabels:
        """The labels of one sample.

        Args:
            key: The sample's own key.
            shard_id: Its shard, needed where several shards have the key.
            index: Its position in the shard, needed where the shard has the key twice.

        Raises:
            InputError: No committed sample, or more than one, is meant.
        """
        wanted = ds.field("key") == key
        if shard_id is not None:
            wanted &= ds.field("shard_id") == shard_id
        if index is not None:
            wanted &= ds.field("index") == index
        found = table_rows(self.images.to_table(filter=wanted))
        if len(found) != 1:
            raise self._ambiguous(key, found)
        row = found[0]
        mine = (ds.field("shard_id") == row["shard_id"]) & (ds.field("index") == row["index"])
        persons = table_rows(self.persons.to_table(filter=mine))
        persons.sort(key=lambda person: int(person["person"]))
        arrays = {task: self.array(task) for task, schema in self.schemas.items() if schema.array}
        return SampleLabels(row, tuple(persons), self.schemas, arrays)

    def _dataset(self, level: Level) -> ds.Dataset:
        schema = table_schema(level, list(self.schemas.values()), self.job.extra_columns)
        named = [
            (commit.tables[level.table].key, ds.field("shard_id") == commit.shard_id)
            for commit in self.commits.values()
            if level.table in commit.tables
        ]
        if not named:
            return ds.dataset(pa.Table.from_batches([], schema=schema))
        return ds.FileSystemDataset.from_paths(
            [key for key, _ in named],
            schema=schema,
            format=ds.ParquetFileFormat(),
            filesystem=arrow_filesystem(self._store),
            # lets a filter on shard_id skip the other files without opening them
            partitions=[expression for _, expression in named],
        )

    def _ambiguous(self, key: str, found: list[dict[str, Any]]) -> InputError:
        if not found:
            return InputError(
                f"no sample {key!r} among the {len(self.commits)} committed shards of "
                f"{self._store.uri}; check the key, or finish the job with `run`"
            )
        places = ", ".join(
            f"{row['shard_id']} ({self.commits[row['shard_id']].shard_key}) at index {row['index']}"
            for row in found[:5]
        )
        return InputError(
            f"{len(found)} samples have the key {key!r}: {places}; say which with shard_id, index"
        )
