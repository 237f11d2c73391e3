"""The values that flow through a job, from an input shard to a labeled row.

Plain frozen records without behaviour beyond trivial arithmetic; reading, decoding, labeling and
storing live in the packages above. The conventions below hold in every module, table and array.

Coordinates are (x, y) in source pixels after EXIF orientation, pixel centres at integers, float32.
Sizes are (height, width). Boxes are COCO xywh: left, top, width, height in source pixels.
Images are uint8 RGB of shape (height, width, 3). Ranges are half-open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

TaskName = Literal[
    "embedding", "features", "pose", "seg", "normal", "pointmap", "matting", "albedo", "depth"
]
Array = npt.NDArray[Any]

FORMAT_VERSION: Final = 1
"""Version of what is on disk and of the label schemas; part of the spec digest."""

NO_CLASS: Final = 255
"""Stands in class masks where there is no label; also the class that training ignored."""


class Status(StrEnum):
    """What became of a sample; every sample has exactly one (invariant I1)."""

    OK = "ok"
    EMPTY = "empty"
    QUARANTINED = "quarantined"


class Level(StrEnum):
    """Whether a label belongs to the image or to one person of it; also the table it goes to."""

    IMAGE = "image"
    PERSON = "person"

    @property
    def table(self) -> str:
        """Name of the table that holds rows of this level."""
        return "images" if self is Level.IMAGE else "persons"


class ViewKind(StrEnum):
    """How a model input is cut from a source image."""

    STRETCH = "stretch"
    LETTERBOX = "letterbox"
    CROP = "crop"


class Preprocess(StrEnum):
    """Whose resampling a view reproduces: the transformers port's or the original code's."""

    TRANSFORMERS = "transformers"
    ORIGINAL = "original"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a sample (or part of a shard) could not be labeled.

    Attributes:
        reason: Dotted name, for example `decode.truncated` or `source.missing_member`.
        message: What, which value, where; shown to a person.
    """

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Shard:
    """One input object, or one slice of a listing, with the version it was planned at.

    Attributes:
        shard_id: 32 hex digits from `key` and `version` (invariant I4).
        key: Source-relative name, stable when the corpus moves as a whole.
        uri: Absolute address of the object, or of the root that `members` are relative to.
        version: Etag where the store has one, else `size-mtime_ns`; a hash for a slice.
        size_bytes: Size of the object, or the sum over `members`.
        members: For a slice of a listing: the source-relative image names, in order.
        fingerprints: For each member 8 hex digits over its size and version; empty where those
            were not known when it was planned.
    """

    shard_id: str
    key: str
    uri: str
    version: str
    size_bytes: int
    members: tuple[str, ...] = ()
    fingerprints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """One image of a shard, still encoded.

    Attributes:
        key: The sample's own key, byte for byte as the source has it.
        index: Position in the shard, from 0.
        encoded: The image file's bytes; None exactly when `problem` says why there are none.
        boxes: (P, 4) float32 COCO xywh given by the source, or None where it gives none.
        box_scores: (P,) float32, or None where the source has no scores.
        extra: Columns or members of the source that the job keeps, by name (JSON values).
        problem: Why the sample is to be quarantined, found while reading.
    """

    key: str
    index: int
    encoded: bytes | None
    boxes: Array | None = None
    box_scores: Array | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive samples `[start, start + len(samples))` of one shard: the thing that flows.

    Attributes:
        shard_id: The shard's id.
        index: Number of the chunk in its shard; `start == index * chunk_samples`.
        start: Index of the first sample in the shard.
        samples: 1 to `chunk_samples`; 0 only for the single chunk of an empty shard.
        last: Whether this chunk ends the shard, which makes the shard's sample count known.
        problems: Damage of the shard that belongs to no sample; only on the last chunk.
    """

    shard_id: str
    index: int
    start: int
    samples: tuple[Sample, ...]
    last: bool
    problems: tuple[Problem, ...] = ()

    @property
    def stop(self) -> int:
        """Index after the last sample of the chunk in the shard."""
        return self.start + len(self.samples)


@dataclass(frozen=True, slots=True)
class Affine:
    """An axis-aligned map between two pixel grids: `x' = scale_x * x + offset_x`, same for y.

    Pixel centres are at integers on both sides. A negative scale is a mirror.
    """

    scale_x: float
    scale_y: float
    offset_x: float
    offset_y: float

    def apply(self, xy: Array) -> Array:
        """Map points (..., 2) given as (x, y)."""
        scale = np.array([self.scale_x, self.scale_y])
        mapped: Array = np.asarray(xy) * scale + np.array([self.offset_x, self.offset_y])
        return mapped

    def inverse(self) -> Affine:
        """The map in the other direction."""
        return Affine(
            1.0 / self.scale_x,
            1.0 / self.scale_y,
            -self.offset_x / self.scale_x,
            -self.offset_y / self.scale_y,
        )

    def then(self, outer: Affine) -> Affine:
        """The map that applies `self` first and `outer` after it."""
        return Affine(
            outer.scale_x * self.scale_x,
            outer.scale_y * self.scale_y,
            outer.scale_x * self.offset_x + outer.offset_x,
            outer.scale_y * self.offset_y + outer.offset_y,
        )

    def as_row(self) -> tuple[float, float, float, float]:
        """(scale_x, scale_y, offset_x, offset_y), the order used in tables."""
        return (self.scale_x, self.scale_y, self.offset_x, self.offset_y)


@dataclass(frozen=True, slots=True)
class Region:
    """A rectangle of whole pixels on a grid: rows `[top, top + height)`, same for columns."""

    top: int
    left: int
    height: int
    width: int


@dataclass(frozen=True, slots=True)
class ViewSpec:
    """What kind of model input a task needs; views with equal specs are made once.

    Attributes:
        kind: How the image is cut.
        height: Rows of the model input.
        width: Columns of the model input.
        preprocess: Whose resampling to reproduce.
        variant: Which of the original code's filters, where tasks of a kind differ (`seg`,
            `matting`, `v1`); empty where only one exists.
        region: Whether stretched and letterboxed views show the image, or one person's box each.
    """

    kind: ViewKind
    height: int
    width: int
    preprocess: Preprocess = Preprocess.TRANSFORMERS
    variant: str = ""
    region: Level = Level.IMAGE

    @property
    def owner(self) -> Level:
        """Whether there is one view for each image or one for each person."""
        return Level.PERSON if self.kind is ViewKind.CROP else self.region

    @property
    def name(self) -> str:
        """A short name that is unique among the specs of a job."""
        region = "" if self.region is Level.IMAGE else self.region
        size = f"{self.height}x{self.width}"
        parts = [self.kind, size, self.preprocess, self.variant, region]
        return "-".join(str(part) for part in parts if part)


class Canvases(Protocol):
    """(n, height, width, 3) uint8 RGB: an array, or what makes the ranges that are taken."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, height, width, 3)."""

    def __getitem__(self, wanted: slice, /) -> Array:
        """The canvases of a range."""


@dataclass(frozen=True, slots=True)
class ViewBatch:
    """The views of one spec for the samples of one chunk, in sample then person order.

    Attributes:
        spec: What the views are.
        canvases: (n, height, width, 3) uint8 RGB; may be read-only.
        to_source: n maps from view pixels to source pixels.
        content: n regions of the canvas that show the image.
        source_sizes: n (height, width) of the oriented source images.
        rows: n positions of the owner: the sample in the chunk for views of whole images, the
            person in the chunk for views of persons.
    """

    spec: ViewSpec
    canvases: Canvases
    to_source: tuple[Affine, ...]
    content: tuple[Region, ...]
    source_sizes: tuple[tuple[int, int], ...]
    rows: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, start: int, stop: int) -> ViewBatch:
        """Views `[start, stop)` without copying canvases."""
        return ViewBatch(
            self.spec,
            self.canvases[start:stop],
            self.to_source[start:stop],
            self.content[start:stop],
            self.source_sizes[start:stop],
            self.rows[start:stop],
        )


@dataclass(frozen=True, slots=True)
class ColumnField:
    """One label column of a table.

    Attributes:
        name: Column name, unique in its table.
        dtype: numpy dtype name, or `string`.
        shape: Fixed shape of one value; () for a scalar. Stored as nested fixed-size lists.
        unit: For example `px`, `m`, `probability`; empty where there is none.
        description: One sentence for the footer metadata and the docs.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] = ()
    unit: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class ArrayField:
    """The dense array of a task.

    Attributes:
        row_shape: Shape of one row, for example (3, 1024, 768).
        dtype: numpy dtype name.
        fill_value: Stands where no label is: padding of a frame, rows that were not labeled.
        dimension_names: One name per axis of a row, for example ("channel", "y", "x").
        codec: `zstd` for class maps, `blosc` (lz4, byte shuffle) for numeric maps.
        unit: For example `m`; empty where there is none.
        description: One sentence for the array attributes and the docs.
        rows_per_sample: Rows that are set aside for each sample: 1 for labels of images, the job's
            `max_persons` for labels of persons. Sample i of a shard has the rows from
            `i * rows_per_sample` on; those without a label are absent.
    """

    row_shape: tuple[int, ...]
    dtype: str
    fill_value: float | int
    dimension_names: tuple[str, ...]
    codec: Literal["zstd", "blosc"]
    unit: str = ""
    description: str = ""
    rows_per_sample: int = 1


_AFFINE: Final = "frame to source: scale_x, scale_y, offset_x, offset_y"


@dataclass(frozen=True, slots=True)
class LabelSchema:
    """Everything that a reader needs to know about the labels of one task.

    Attributes:
        task: The task.
        level: Whose labels they are.
        columns: Label columns in the level's table, without the row and frame columns of `array`.
        array: The dense array, or None for tasks that only fill columns.
        metadata: JSON values: model id and digest, licence, vocabulary, skeleton, preprocessing.
    """

    task: TaskName
    level: Level
    columns: tuple[ColumnField, ...]
    array: ArrayField | None
    metadata: Mapping[str, Any]

    @property
    def row_columns(self) -> tuple[ColumnField, ...]:
        """Columns that tie a table row to its array row: position, root, frame size and affine.

        The root is filled in when a shard is sealed.
        """
        if self.array is None:
            return ()
        return (
            ColumnField(f"{self.task}_row", "int64", (), "", "row in the shard's array"),
            ColumnField(f"{self.task}_array", "string", (), "", "root of that array in the job"),
            ColumnField(f"{self.task}_height", "int32", (), "px", "valid rows of the frame"),
            ColumnField(f"{self.task}_width", "int32", (), "px", "valid columns of the frame"),
            ColumnField(f"{self.task}_affine", "float64", (4,), "px", _AFFINE),
        )

    @property
    def table_columns(self) -> tuple[ColumnField, ...]:
        """All columns of this task in its table, in order."""
        return self.row_columns + self.columns


@dataclass(frozen=True, slots=True)
class Frame:
    """The undistorted grid on which one row of an array lives, at its top left.

    Attributes:
        height: Valid rows; the rest of the array row is fill.
        width: Valid columns.
        to_source: From frame pixels to source pixels.
    """

    height: int
    width: int
    to_source: Affine


@dataclass(frozen=True, slots=True)
class TaskLabels:
    """Labels of one task for the views of a batch, on the host.

    Attributes:
        columns: By column name, (n, *shape) arrays.
        array: (n, *row_shape) in the schema's dtype, or None.
        frames: n frames where there is an array, else empty.
        problems: n entries, None where the view was labeled.
    """

    columns: Mapping[str, Array]
    array: Array | None
    frames: tuple[Frame, ...]
    problems: tuple[Problem | None, ...]
