"""All labels of one sample: its rows, and its arrays on their frames or in source pixels.

Finding the sample is left to `labels`. Arrays are read when asked for; their last axes are y and x.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sapiens_batch.errors import InputError
from sapiens_batch.images import frames
from sapiens_batch.images.geometry import stretch_map
from sapiens_batch.labelset.arrays import LabelArray
from sapiens_batch.records import Affine, Array, LabelSchema, Level
from sapiens_batch.sinks import zarr
from sapiens_batch.sinks.parquet import column_values
from sapiens_batch.spec.mistakes import did_you_mean

Row = Mapping[str, Any]


def frame_affine(row: Row, task: str) -> Affine:
    """From frame pixels to source pixels, as a table row of a labeled image or person says."""
    return Affine(*(float(value) for value in row[f"{task}_affine"]))


@dataclass(frozen=True, slots=True)
class SampleLabels:
    """One sample.

    Attributes:
        row: Its row in `images`; fixed-size lists are numpy arrays, null is None.
        persons: Its rows in `persons`, by person.
        schemas: Label schemas of the job, by task.
        arrays: Arrays of the job, by task.
    """

    row: Row
    persons: tuple[Row, ...]
    schemas: Mapping[str, LabelSchema]
    arrays: Mapping[str, LabelArray]

    def array(self, task: str, person: int | None = None) -> Array | None:
        """A task's array, cropped to its frame, or None where there is no label.

        Args:
            task: A task with an array.
            person: Number of the person, for tasks that label persons.

        Raises:
            KeyError: The job has no such task, or the sample no such person.
            ValueError: The task has no array, or `person` does not go with its level.
        """
        owner = self._owner(task, person)
        if owner[f"{task}_row"] is None:
            return None
        values = self.arrays[task].row(owner["shard_id"], owner[f"{task}_row"])
        if values is None:
            return None
        return values[..., : owner[f"{task}_height"], : owner[f"{task}_width"]]

    def to_source(
        self, task: str, person: int | None = None, *, size: tuple[int, int] | None = None
    ) -> Array | None:
        """A task's array in source pixels, or None where there is no label.

        Class maps take the nearest value, numeric maps are bilinear, normals are made unit again.
        The y and x axes get the source's height and width; what a person's frame does not cover is
        fill.

        Args:
            task: A task with an array.
            person: Number of the person, for tasks that label persons; None lays the maps of all
                persons over one another, the first on top (see `lay_over`).
            size: (height, width) of the source scaled, px; the map is resampled once all the same.

        Raises:
            KeyError, ValueError: As for `array`.
        """
        return self._in_source(task, person, channel=None, size=size)

    def depth(self, task: str = "pointmap") -> Array | None:
        """(height, width) float32 distance along the optical axis, m, or None without a label.

        Where persons were labeled, each one's is that of a camera of its own, and they are laid
        over one another as by `to_source`.

        Raises:
            KeyError, ValueError: As for `array`.
        """
        return self._in_source(task, None, channel=2)

    def _in_source(
        self,
        task: str,
        person: int | None,
        *,
        channel: int | None,
        size: tuple[int, int] | None = None,
    ) -> Array | None:
        """A map on the source; one channel of it comes in float32."""
        schema = self._schema(task)
        size = size or (self.row["height"], self.row["width"])
        owners: list[int | None] = [person]
        if schema.array is not None and schema.level is Level.PERSON and person is None:
            owners = [row["person"] for row in reversed(self.persons)]
        whole: Array | None = None
        for owner in owners:
            placed = self._placed(task, owner, channel, size)
            if placed is None:
                continue
            first = whole is None
            if whole is None:
                shape = (*placed.values.shape[:-2], *size)
                whole = np.full(shape, self.arrays[task].field.fill_value, placed.values.dtype)
            window = whole[..., placed.rows, placed.columns]
            window[...] = placed.values if first else lay_over(schema, placed.values, window)
        return whole

    def _placed(
        self, task: str, person: int | None, channel: int | None, size: tuple[int, int]
    ) -> frames.Placed | None:
        """A map where it lies on the source of that size."""
        values = self.array(task, person)
        if values is None:
            return None
        field = self.arrays[task].field
        affine = frame_affine(self._owner(task, person), task)
        source = (self.row["height"], self.row["width"])
        if size != source:
            affine = affine.then(stretch_map(size, source))
        if channel is not None:
            values = (values[channel] if values.ndim == 3 else values).astype(np.float32)
        placed = frames.place(values, affine, size, interpolation=frames.interpolation_of(field))
        if task == "normal":
            return placed._replace(values=frames.renormalize(placed.values, 0))
        return placed

    def mask(
        self,
        classes: Sequence[str | int],
        *,
        task: str = "seg",
        person: int | None = None,
        source: bool = True,
    ) -> Array | None:
        """Where a class map has one of some classes, or None where there is no label.

        Args:
            classes: Names, as in the task's metadata, or numbers.
            task: A task whose array holds classes.
            person: Number of the person, for tasks that label persons; None means all of them,
                which goes with `source` only.
            source: In source pixels rather than on the frame.

        Returns:
            (height, width) bool; `masks` makes run lengths or polygons of it.

        Raises:
            KeyError, ValueError: As for `array`.
            InputError: The task has no such class.
        """
        numbers = [self._class_number(task, one) for one in classes]
        values = self.to_source(task, person) if source else self.array(task, person)
        return None if values is None else np.isin(values, numbers)

    def _class_number(self, task: str, name: str | int) -> int:
        known = self._schema(task).metadata.get("classes") or []
        if isinstance(name, int):
            return name
        if name not in known:
            raise InputError(
                f"task {task} has no class {name!r}; it has {', '.join(known) or 'only numbers'}"
            )
        return int(known.index(name))

    def _owner(self, task: str, person: int | None) -> Row:
        """The table row that ties this sample, or one of its persons, to the task's array."""
        schema = self._schema(task)
        if schema.array is None:
            raise ValueError(f"task {task} fills table columns only, it has no array")
        if (person is None) is not (schema.level is Level.IMAGE):
            raise ValueError(
                f"task {task} labels {schema.level.table}: "
                f"{'leave out person' if schema.level is Level.IMAGE else 'say which person'}"
            )
        if person is None:
            return self.row
        for row in self.persons:
            if row["person"] == person:
                return row
        there_are = ", ".join(str(row["person"]) for row in self.persons) or "none"
        raise KeyError(f"sample {self.row['key']!r} has persons {there_are}, not {person}")

    def _schema(self, task: str) -> LabelSchema:
        if task not in self.schemas:
            there_are = ", ".join(self.schemas)
            raise KeyError(
                f"no task {task!r}; there are {there_are}{did_you_mean(task, self.schemas)}"
            )
        return self.schemas[task]


def lay_over(schema: LabelSchema, top: Array, below: Array) -> Array:
    """One map of two.

    Args:
        schema: A task with an array whose last axes are y and x.
        top: (..., h, w) the map that wins where both have a label.
        below: (..., h, w) the map that shows elsewhere.

    Returns:
        (..., h, w). A background in class masks hides nothing, and of two mattes the greater alpha
        wins, so that a person who reaches into another one's box does not erase the other.
    """
    if schema.array is None:
        raise ValueError(f"task {schema.task} has no array")
    shows = zarr.is_labeled(schema.array, top)
    free = ~zarr.is_labeled(schema.array, below)
    if schema.task == "seg":
        shows &= (top != background_class(schema)) | free
    elif schema.task == "matting":
        shows &= (top[-1] >= below[-1]) | free
    merged: Array = np.where(shows, top, below)
    return merged


def background_class(schema: LabelSchema) -> int:
    """The class that means "no person": the one called background, else the first."""
    names = [str(name).lower() for name in schema.metadata.get("classes") or ()]
    return names.index("background") if "background" in names else 0


def table_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows of a table as dictionaries with numpy arrays for fixed-size lists."""
    columns: dict[str, list[Any]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_fixed_size_list(column.type):
            values, present = column_values(column)
            columns[name] = [
                value if here else None for value, here in zip(values, present, strict=True)
            ]
        else:
            columns[name] = column.to_pylist()
    return [{name: columns[name][i] for name in columns} for i in range(table.num_rows)]
