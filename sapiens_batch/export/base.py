"""What an exporter is: the objects of one shard, then those that need all shards.

An exporter turns labels into the bytes of one format and knows neither the store nor what was done
before; that is `run`. The same shard and options always give the same bytes, so that an interrupted
export can be continued by anybody.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict

from sapiens_batch.errors import InputError
from sapiens_batch.export.documents import Finished
from sapiens_batch.export.pictures import Picture
from sapiens_batch.labelset import LabelSet, SampleLabels
from sapiens_batch.records import LabelSchema, TaskName


class ExportOptions(BaseModel):
    """Options of one exporter; all have defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Options = TypeVar("Options", bound=ExportOptions)


class Made(NamedTuple):
    """One object of an export.

    Attributes:
        data: Its bytes, valid until the next object is asked for.
        rows: Records in it, for counts; 0 where that means nothing.
    """

    key: str
    data: bytes | memoryview
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Labeled:
    """One sample to export.

    Attributes:
        name: Safe object name, unique in its shard.
        number: Position among all samples of the export's shards, chosen or not, from 0.
        picture: The encoded photo, where the exporter uses pictures and they are asked for.
    """

    labels: SampleLabels
    name: str
    number: int
    picture: Picture | None

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the upright source image."""
        return int(self.labels.row["height"]), int(self.labels.row["width"])

    @property
    def identity(self) -> dict[str, Any]:
        """What finds the sample again."""
        row = self.labels.row
        return {"key": row["key"], "shard_id": row["shard_id"], "index": int(row["index"])}


@dataclass(frozen=True, slots=True)
class ShardToExport:
    """The chosen samples of one shard, by index and to be read once; its position in the export."""

    number: int
    samples: Iterable[Labeled]


class Exporter(ABC, Generic[Options]):
    """One format.

    `origin` is what `provenance` says about the job.

    Attributes:
        name: What it is called on the command line.
        options_type: Its options.
        pictures: Whether it needs the photos, can use them, or has no place for them.
        needs: Tasks, one of which the job must have; empty for none.

    Raises:
        InputError: The job has none of the labels that the format is for.
        DependencyError: A package is missing.
    """

    name: ClassVar[str]
    options_type: ClassVar[type[ExportOptions]]
    pictures: ClassVar[Literal["default", "optional", "unused"]] = "unused"
    needs: ClassVar[tuple[TaskName, ...]] = ()

    def __init__(self, labels: LabelSet, options: Options, origin: Mapping[str, Any]) -> None:
        self.labels = labels
        self.options = options
        self.origin = origin
        if self.needs and not any(task in labels.schemas for task in self.needs):
            raise InputError(
                f"export {self.name}: job {labels.job.name!r} has labels for "
                f"{', '.join(labels.schemas) or 'nothing'}; {self.name} takes "
                f"{' or '.join(self.needs)}"
            )
        self.prepare()

    def prepare(self) -> None:
        """Decide what labels and options decide for all shards."""

    @property
    def schemas(self) -> Mapping[str, LabelSchema]:
        """Label schemas of the job, by task."""
        return self.labels.schemas

    @abstractmethod
    def shard(self, shard: ShardToExport) -> Iterator[Made]:
        """The objects of one shard, pieces among them; each is stored before the next is made."""

    def finish(self, finished: Finished) -> Iterator[Made]:
        """The objects that need all shards."""
        return iter(())
