"""What the outputs of an ONNX detector mean, told by the names and shapes of its graph.

Preparing images, running the graph and which class is a person are left to `onnx_detector`.
Invariant: a graph that fits no layout, or more than one, is refused; nothing is guessed from values
but whether boxes of one-stage models are decoded already, which no shape shows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from sapiens_batch.records import Array

Dimension = int | str | None
"""A length, or the name of one that the caller chooses."""

Size = tuple[int, int]
Placing = Literal["stretched", "corner", "centred"]

SUPPORTED = (
    "`logits` (1, Q, C) with `pred_boxes` (1, Q, 4), as transformers models have; "
    "(1, 4 + C, N), as YOLOv8 to YOLO11; (1, N, 5 + C) with N = 1 or 3 for each cell of strides "
    "8, 16, 32 (and 64), as YOLOX and YOLOv5; (1, N, 6) or (N, 6) of x1, y1, x2, y2, score, class, "
    "as exports with suppression inside"
)

_STRIDES = ((8, 16, 32), (8, 16, 32, 64))
_END_TO_END_COLUMNS = 6


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a graph.

    Attributes:
        name: Its name.
        shape: Its dimensions.
        type_name: As onnxruntime names it, for example `tensor(float)`.
    """

    name: str
    shape: tuple[Dimension, ...]
    type_name: str

    def __str__(self) -> str:
        """Name and shape, for messages."""
        return f"`{self.name}` ({', '.join(str(one) for one in self.shape)})"


@dataclass(frozen=True, slots=True)
class PixelRules:
    """What a model wants to see.

    Attributes:
        placing: `stretched` over the whole input; or with its aspect kept in the upper left
            `corner`, or `centred`, on grey of 114.
        order: Of the colour channels.
        scale: Factor on values from 0 to 255.
        mean: Subtracted after that, by channel.
        std: Divisor after that, by channel.
    """

    placing: Placing
    order: Literal["rgb", "bgr"] = "rgb"
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Layout(ABC):
    """One meaning of outputs.

    Attributes:
        name: For digests and messages.
        outputs: Names of the outputs to compute.
        num_classes: Classes that the model tells apart; None where the graph does not show it.
        rules: What the model wants to see.
    """

    name: str
    outputs: tuple[str, ...]
    num_classes: int | None
    rules: PixelRules

    @abstractmethod
    def persons(self, found: Sequence[Array], size: Size, person: int) -> tuple[Array, Array]:
        """The candidates that are persons.

        Args:
            found: The outputs of one image.
            size: (height, width) of the model's input, px.
            person: Number of the class.

        Returns:
            (P, 4) left, top, right, bottom edge in pixels of the input, and (P,) scores; NaN for
            candidates of which it is not known whether they are persons.
        """


@dataclass(frozen=True)
class QueryLayout(Layout):
    """Logits and boxes by query, centre and size in fractions of the input.

    One logit more than classes is `no object`, and scores are a softmax; else they are sigmoids.
    """

    no_object: bool = False

    def persons(self, found: Sequence[Array], size: Size, person: int) -> tuple[Array, Array]:
        """See `Layout.persons`."""
        logits, boxes = (one[0].astype(np.float64) for one in found)  # (Q, C), (Q, 4)
        unknown: Array = ~np.isfinite(logits.max(axis=1))
        logits[unknown] = 0
        if self.no_object:
            powers = np.exp(logits - logits.max(axis=1, keepdims=True))
            likely = powers[:, :-1] / powers.sum(axis=1, keepdims=True)
            chosen = likely.argmax(axis=1) == person
            scores = likely[:, person]
        else:
            chosen = np.ones(len(logits), bool)
            scores = (1 + np.tanh(logits[:, person] / 2)) / 2  # the sigmoid, without overflow
        height, width = size
        edges = _edges(boxes * (width, height, width, height))
        return _chosen(edges, scores, chosen, unknown)


@dataclass(frozen=True)
class ColumnLayout(Layout):
    """One column for each candidate: centre and size in input pixels, then a score for each class.

    Rows after the classes, such as mask coefficients or keypoints, are left out.
    """

    def persons(self, found: Sequence[Array], size: Size, person: int) -> tuple[Array, Array]:
        """See `Layout.persons`."""
        return _best_class(found[0][0].T, self.num_classes or 1, 4, person)


@dataclass(frozen=True)
class RowLayout(Layout):
    """One row for each candidate: centre and size, objectness, then a score for each class."""

    def persons(self, found: Sequence[Array], size: Size, person: int) -> tuple[Array, Array]:
        """See `Layout.persons`."""
        return _best_class(found[0][0], self.num_classes or 1, 5, person)


@dataclass(frozen=True)
class CellLayout(RowLayout):
    """Rows with one candidate for each cell; raw ones are offsets in cells and logarithms of sizes.

    Attributes:
        strides: Sides of the cells, px.
        raw: Whether centres and sizes are still to be decoded.
    """

    strides: tuple[int, ...] = _STRIDES[0]
    raw: bool = False

    def settled(self, found_on_grey: Sequence[Array]) -> CellLayout | None:
        """This layout, knowing whether it is raw from what the model finds on a grey input.

        Decoded centres are spread over the whole input; raw ones lie within a few cells. None where
        they are not finite, and so are neither.
        """
        centres = np.abs(found_on_grey[0][0, :, :2].astype(np.float64))
        if not np.isfinite(centres).all():
            return None
        return replace(self, raw=bool(np.median(centres) < self.strides[0]))

    def persons(self, found: Sequence[Array], size: Size, person: int) -> tuple[Array, Array]:
        """See `Layout.persons`."""
        if not self.raw:
            return super().persons(found, size, person)
        rows = found[0].astype(np.float64)
        corners, cells = _cells(size, self.strides)
        rows[0, :, :2] = (rows[0, :, :2] + corners) * cells
        rows[0, :, 2:4] = np.exp(np.minimum(rows[0, :, 2:4], 20)) * cells
        return super().persons([rows], size, person)


@dataclass(frozen=True)
class EndToEndLayout(Layout):
    """Finished boxes: left, top, right, bottom in input pixels, score, class."""

    def persons(self, found: Sequence[Array], size: Size, person: int) -> tuple[Array, Array]:
        """See `Layout.persons`."""
        rows = found[0].reshape(-1, _END_TO_END_COLUMNS).astype(np.float64)
        unknown: Array = np.isnan(rows[:, 4:].max(axis=1))
        return _chosen(rows[:, :4], rows[:, 4], rows[:, 5].round() == person, unknown)


def recognise(
    outputs: Sequence[Port], size: Size | None, num_names: int | None, *, scale: float
) -> list[Layout]:
    """Every layout that a graph's outputs fit; a graph is known only where it is one.

    Args:
        outputs: The graph's outputs.
        size: (height, width) of its input, px; None where the caller chooses.
        num_names: Classes that its metadata or its configuration name; None where they do not.
        scale: Factor on pixels of models that do not say.
    """
    by_name = {port.name: port for port in outputs}
    if {"logits", "pred_boxes"} <= by_name.keys():
        return _queries(by_name, num_names)
    flat = [port for port in outputs if _is_flat(port)]
    if len(flat) != 1 or size is None:
        return []
    return _of_rows(flat[0], size, num_names, PixelRules("centred", scale=scale))


def mask_prototypes(outputs: Sequence[Port], layout: Layout) -> list[Port]:
    """Outputs that may be what masks are made of, which leaves the number of classes open.

    A candidate's values then end in mask coefficients, as many as nobody says.
    """
    if not isinstance(layout, (ColumnLayout, RowLayout)):
        return []
    return [port for port in outputs if len(port.shape) == 4]


def _of_rows(port: Port, size: Size, num_names: int | None, centred: PixelRules) -> list[Layout]:
    """The layouts of a model with one output, of candidates and their values."""
    names = (port.name,)
    rows, columns = port.shape[-2:]
    is_batch = len(port.shape) == 3
    in_rows = _num_classes(columns, 5, num_names) if is_batch else None
    in_columns = _num_classes(rows, 4, num_names) if is_batch else None
    fitting: list[Layout] = []
    if in_rows:
        corner = PixelRules("corner", "bgr", scale=1.0)
        for strides in _STRIDES:
            number = _num_cells(size, strides)
            if rows == number:
                fitting.append(CellLayout("cells", names, in_rows, corner, strides))
            elif rows == 3 * number:
                fitting.append(RowLayout("rows", names, in_rows, centred))
        if not isinstance(rows, int):
            fitting.append(RowLayout("rows", names, in_rows, centred))
    # a row for each cell can be no coincidence of boxes that passed suppression
    if columns == _END_TO_END_COLUMNS and not (fitting and isinstance(rows, int)):
        fitting.append(EndToEndLayout("end to end", names, num_names, centred))
    is_long = not isinstance(columns, int) or (isinstance(rows, int) and columns >= rows)
    if is_long and in_columns:
        fitting.append(ColumnLayout("columns", names, in_columns, centred))
    return fitting


def _num_classes(length: Dimension, others: int, num_names: int | None) -> int | None:
    """Classes among values of which `others` are no scores; None where they cannot be there."""
    if not isinstance(length, int) or length <= others:
        return None
    available = length - others
    if num_names is None:
        return available
    return num_names if num_names <= available else None


def _queries(ports: Mapping[str, Port], num_names: int | None) -> list[Layout]:
    columns = ports["logits"].shape[-1]
    if not isinstance(columns, int):
        return []
    if num_names is not None and columns not in (num_names, num_names + 1):
        return []
    # 91 COCO category numbers, with gaps, or 80 classes; each with or without `no object`
    no_object = columns in (81, 92) if num_names is None else columns == num_names + 1
    outputs, num_classes = ("logits", "pred_boxes"), columns - int(no_object)
    return [QueryLayout("queries", outputs, num_classes, PixelRules("stretched"), no_object)]


def _is_flat(port: Port) -> bool:
    shape = port.shape
    return len(shape) == 3 or (len(shape) == 2 and shape[-1] == _END_TO_END_COLUMNS)


def _num_cells(size: Size, strides: Sequence[int]) -> int:
    return sum((size[0] // stride) * (size[1] // stride) for stride in strides)


def _cells(size: Size, strides: Sequence[int]) -> tuple[Array, Array]:
    """(N, 2) corners x, y in cells and (N, 1) strides, row by row, small cells first."""
    corners, sides = [], []
    for stride in strides:
        rows, columns = np.mgrid[: size[0] // stride, : size[1] // stride]
        corners.append(np.stack([columns.ravel(), rows.ravel()], axis=1))
        sides.append(np.full((rows.size, 1), stride))
    return np.concatenate(corners), np.concatenate(sides)


def _best_class(rows: Array, num_classes: int, first: int, person: int) -> tuple[Array, Array]:
    """Rows whose best class is the wanted one; column 4 is objectness if classes come after it."""
    classes = rows[:, first : first + num_classes]
    unknown: Array = np.isnan(rows[:, 4 : first + num_classes].max(axis=1))
    scores = classes[:, person].astype(np.float64)
    if first == 5:
        scores = scores * rows[:, 4]
    edges = _edges(rows[:, :4].astype(np.float64))
    return _chosen(edges, scores, classes.argmax(axis=1) == person, unknown)


def _chosen(edges: Array, scores: Array, chosen: Array, unknown: Array) -> tuple[Array, Array]:
    """The chosen candidates, and the unknown ones with a score of NaN."""
    scores = np.where(unknown, np.nan, scores)
    return edges[chosen | unknown], scores[chosen | unknown]


def _edges(boxes: Array) -> Array:
    """(P, 4) centre and size to left, top, right, bottom."""
    with np.errstate(invalid="ignore", over="ignore"):  # of boxes that are not finite
        return np.concatenate(
            [boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], axis=1
        )
