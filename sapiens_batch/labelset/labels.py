"""One job's labels as a whole: datasets, arrays, look-up by key.

What a sample's labels look like is left to `sample`. The set of visible shards is fixed when the
job is opened; open it again to see more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from sapiens_batch.errors import InputError
from sapiens_batch.labelset.arrays import LabelArray
from sapiens_batch.labelset.filters import Filter, as_expression
from sapiens_batch.labelset.sample import SampleLabels, table_rows
from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.documents import StoredObject
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.snapshot import CommitSummary, read_summaries
from sapiens_batch.records import LabelSchema, Level
from sapiens_batch.sinks.parquet import table_schema
from sapiens_batch.storage import Store, open_store
from sapiens_batch.storage.arrow import arrow_filesystem

if TYPE_CHECKING:
    import ray.data
    from torch.utils.data import Dataset, IterableDataset

    from sapiens_batch.labelset.items import Size

KEPT_COMMITS: Final = 256
"""Documents of large shards are large, so only the last few are kept in memory."""


class CommitReader(Mapping[str, Commit]):
    """Commits by shard id, of the generations that were visible; each is read when asked for."""

    def __init__(self, manifest: Manifest, generations: Mapping[str, int]) -> None:
        self._manifest = manifest
        self._generations = generations
        self._kept: dict[str, Commit] = {}

    def __getitem__(self, shard_id: str) -> Commit:
        found = self._kept.get(shard_id)
        if found is None:
            found = self._manifest.commit(shard_id, self._generations[shard_id])
            while len(self._kept) >= KEPT_COMMITS:
                self._kept.pop(next(iter(self._kept)), None)
            self._kept[shard_id] = found
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._generations)

    def __len__(self) -> int:
        return len(self._generations)

    def __contains__(self, shard_id: object) -> bool:
        return shard_id in self._generations


def select_rows(
    store: Store,
    stored: StoredObject,
    *,
    schema: pa.Schema | None = None,
    wanted: ds.Expression | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Some rows and columns of a table, in order; no more of it is read than they need.

    Raises:
        MissingObjectError: The object is gone.
        ProtocolError: It is damaged.
    """
    filesystem = arrow_filesystem(store, {stored.key: stored}.get)
    fragment = ds.ParquetFileFormat().make_fragment(stored.key, filesystem=filesystem)
    names = None if columns is None else list(columns)
    return fragment.to_table(schema=schema, filter=wanted, columns=names)


def open_labels(uri: str, storage_options: Mapping[str, Any] | None = None) -> LabelSet:
    """Open a job directory for reading.

    Raises:
        StorageError: There is no job, or it cannot be read.
        ProtocolError: A document is damaged.
    """
    return LabelSet(Manifest.open(open_store(uri, storage_options)))


class LabelSet:
    """The committed labels of one job.

    Args:
        manifest: The job; which shards are visible is found out now.

    Attributes:
        shards: What is known of every visible shard, by id, without reading its commit.
        commits: Newest commits by shard id, each read when it is asked for.
        schemas: Label schemas by task.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._store = manifest.store
        self.job: JobDocument = manifest.job
        self._summaries = read_summaries(manifest)
        self.shards: Mapping[str, CommitSummary] = self._summaries
        self.commits: Mapping[str, Commit] = CommitReader(manifest, self._summaries.generations())
        self.schemas: Mapping[str, LabelSchema] = {
            schema.task: schema for schema in manifest.job.label_schemas
        }
        self._table_schemas = {
            level: table_schema(level, list(self.schemas.values()), self.job.extra_columns)
            for level in Level
        }

    @cached_property
    def images(self) -> ds.Dataset:
        """One row per sample, sorted within each shard; made when it is first asked for.

        Whoever reads it gets checked bytes (I8): damage raises an error that names the object.
        """
        return self._dataset(Level.IMAGE)

    @cached_property
    def persons(self) -> ds.Dataset:
        """One row per person; made when it is first asked for."""
        return self._dataset(Level.PERSON)

    def __repr__(self) -> str:
        return f"LabelSet({self._store.uri!r}, {len(self.commits)} shards)"

    def array(self, task: str, *, whole_objects: bool = False) -> LabelArray:
        """The dense array of a task.

        With `whole_objects`, for reading in order, each stored object is read once and as a whole.

        Raises:
            KeyError: The job has no such task.
            ValueError: The task has no array.
        """
        if task not in self.schemas:
            raise KeyError(f"job {self.job.name!r} has tasks {sorted(self.schemas)}, not {task!r}")
        schema = self.schemas[task]
        return LabelArray(self._store, schema, self.commits, whole_objects=whole_objects)

    def arrays(self, *, whole_objects: bool = False) -> dict[str, LabelArray]:
        """The dense arrays of all tasks that have one; as `array`."""
        return {
            task: self.array(task, whole_objects=whole_objects)
            for task, schema in self.schemas.items()
            if schema.array
        }

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
        found = self.images.to_table(columns=["shard_id", "index"], filter=wanted).to_pylist()
        if len(found) != 1:
            raise self._ambiguous(key, found)
        return self.sample_at(found[0]["shard_id"], found[0]["index"])

    def sample_at(self, shard_id: str, index: int) -> SampleLabels:
        """The labels of the sample at a place; opens the files of its shard only.

        Raises:
            KeyError: The shard is not committed.
            IndexError: The shard has no such sample.
        """
        for sample in self.shard_samples(shard_id, ds.field("index") == index):
            return sample
        num = self.shards[shard_id].num_samples
        raise IndexError(f"sample {index} of a shard of {num}, {shard_id}")

    def samples(self, wanted: Filter | None = None) -> Iterator[SampleLabels]:
        """Samples in stored order, shard by shard, with one shard's rows in memory.

        Arrays are read when asked for, object by object, so that walking over all samples reads
        each byte once.

        Args:
            wanted: Which rows of `images`: a pyarrow expression or text for `parse_filter`.

        Raises:
            InputError: The text is no filter.
        """
        expression = as_expression(wanted, self._table_schemas[Level.IMAGE])
        arrays = self.arrays(whole_objects=True)
        for shard_id in self.shard_ids(expression):
            yield from self.shard_samples(shard_id, expression, arrays)

    def shard_samples(
        self,
        shard_id: str,
        wanted: ds.Expression | None,
        arrays: Mapping[str, LabelArray] | None = None,
    ) -> Iterator[SampleLabels]:
        """Samples of one shard in order, with their rows in memory.

        Args:
            shard_id: A committed shard.
            wanted: Which rows of `images`.
            arrays: Arrays to read from, by task; those of several calls share what they keep.

        Raises:
            KeyError, ProtocolError: As for `shard_rows`.
        """
        rows = table_rows(self.shard_rows(shard_id, Level.IMAGE, wanted))
        if not rows:
            return
        index = ds.field("index")
        owners = (index >= rows[0]["index"]) & (index <= rows[-1]["index"])
        persons: dict[int, list[dict[str, Any]]] = {}
        for person in table_rows(self.shard_rows(shard_id, Level.PERSON, owners)):
            persons.setdefault(person["index"], []).append(person)
        arrays = self.arrays() if arrays is None else arrays
        for row in rows:
            mine = tuple(persons.get(row["index"], ()))
            yield SampleLabels(row, mine, self.schemas, arrays)

    def shard_ids(self, wanted: ds.Expression | None = None) -> list[str]:
        """Committed shards, sorted; without those that a filter on `shard_id` rules out."""
        if wanted is None or not self.shards:
            return sorted(self.shards)
        owners = {key: one for one, key in self._summaries.table_keys(Level.IMAGE.table)}
        return sorted(owners[one.path] for one in self.images.get_fragments(wanted))

    def shard_rows(
        self,
        shard_id: str,
        level: Level = Level.IMAGE,
        wanted: ds.Expression | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Rows of one shard, in order, with whatever size the job has: one file is opened.

        Raises:
            KeyError: The shard is not committed.
            ProtocolError: The table is damaged.
        """
        if shard_id not in self.shards:
            raise KeyError(f"shard {shard_id!r} is not committed in {self._store.uri}")
        schema = self._table_schemas[level]
        stored = self.shards[shard_id].tables.get(level.table)
        names = schema.names if columns is None else list(columns)
        if stored is None:
            return schema.empty_table().select(names)
        return select_rows(self._store, stored, schema=schema, wanted=wanted, columns=names)

    def to_torch(
        self,
        tasks: Sequence[str],
        wanted: Filter | None = None,
        *,
        size: Size = "stored",
    ) -> Dataset[dict[str, Any]]:
        """A map-style torch dataset: random access, for samplers.

        Args:
            tasks: Label tasks; samples that lack an image-level label of one are left out.
            wanted: Which rows of `images`.
            size: Pixels of arrays, see `items.sample_item`.

        Raises:
            DependencyError: torch is not installed.
            InputError: The job has no such task, or the text is no filter.
        """
        from sapiens_batch.labelset.torch_dataset import LabelDataset

        return LabelDataset(self, tasks, wanted, size=size)

    def to_torch_stream(
        self,
        tasks: Sequence[str],
        wanted: Filter | None = None,
        *,
        size: Size = "stored",
        seed: int | None = None,
    ) -> IterableDataset[dict[str, Any]]:
        """An iterable torch dataset: reads in stored order, shared among workers and processes.

        Arguments are those of `to_torch`; `seed` shuffles the runs of samples that are read
        together, differently each epoch.

        Raises:
            DependencyError, InputError: As for `to_torch`.
        """
        from sapiens_batch.labelset.torch_dataset import LabelStream

        return LabelStream(self, tasks, wanted, size=size, seed=seed)

    def to_ray(
        self,
        tasks: Sequence[str],
        wanted: Filter | None = None,
        *,
        size: Size = "stored",
    ) -> ray.data.Dataset:
        """A Ray dataset with a row per sample; nothing is read before it is consumed.

        Arguments are those of `to_torch`.

        Raises:
            DependencyError, InputError: As for `to_torch`.
        """
        from sapiens_batch.labelset.ray_dataset import ray_dataset

        return ray_dataset(self, tasks, wanted, size=size)

    def _dataset(self, level: Level) -> ds.Dataset:
        """The table of a level; each file takes a kilobyte and a half of memory."""
        schema = self._table_schemas[level]
        keys = list(self._summaries.table_keys(level.table))
        if not keys:
            return ds.dataset(pa.Table.from_batches([], schema=schema))
        return ds.FileSystemDataset.from_paths(
            [key for _, key in keys],
            schema=schema,
            format=ds.ParquetFileFormat(),
            filesystem=arrow_filesystem(self._store, self._summaries.stored),
            # lets a filter on shard_id skip the other files without opening them
            partitions=[ds.field("shard_id") == shard_id for shard_id, _ in keys],
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
