"""Real ONNX detectors, small enough for a test: they find the red rectangle of an image.

Exported from torch modules in each layout of outputs, so that colour order, scale and placing of
what they see decide what they find. The rectangle's class is `PERSON`; a second candidate of
another class and a third without a chance stand beside it.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from sapiens_batch.records import Array

SCORE = 0.9
RED = (250, 20, 20)
NUM_CLASSES = 80


def export(
    path: Path,
    module: nn.Module,
    inputs: Sequence[Tensor],
    names: Mapping[str, Sequence[str]],
    *,
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Path:
    """Write a module as an ONNX file, with the names of its `inputs` and `outputs`."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # the exporter that needs no further package is the older one, and it traces
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            tuple(inputs),
            buffer,
            input_names=list(names["inputs"]),
            output_names=list(names["outputs"]),
            dynamic_axes=dynamic or {},
            dynamo=False,
        )
    model = onnx.load_model_from_string(buffer.getvalue())
    onnx.helper.set_model_props(model, dict(metadata or {}))
    onnx.save(model, path)
    return path


def constant(
    path: Path,
    found: Array,
    size: tuple[int, int],
    *,
    declared: Sequence[int | str] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Path:
    """Write a graph that finds the same in every image, in an output of its shape or as declared.

    Args:
        path: Where to.
        found: What it finds.
        size: (height, width) of its input, px.
        declared: The shape that it claims to give.
        metadata: The graph's metadata.
    """
    kind = onnx.helper.np_dtype_to_tensor_dtype(found.dtype)
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["found"], ["output0"])],
        "constant",
        [info("images", onnx.TensorProto.FLOAT, (1, 3, *size))],
        [info("output0", kind, found.shape if declared is None else declared)],
        [onnx.numpy_helper.from_array(found, "found")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.helper.set_model_props(model, dict(metadata or {}))
    onnx.save(model, path)
    return path


class RedFinder(nn.Module):
    """The edges of the red rectangle in an input, whatever is asked for.

    Args:
        unit: What the brightest value is: 1 or 255.
        red: Channel of red.
        channels_last: Whether the input is (1, H, W, 3).
    """

    def __init__(self, unit: float = 1.0, red: int = 0, channels_last: bool = False) -> None:
        super().__init__()
        self.unit, self.red, self.channels_last = unit, red, channels_last

    def edges(self, pixels: Tensor) -> Tensor:
        """(1, 4) left, top, right, bottom, px."""
        planes = pixels[0].float()
        if self.channels_last:
            planes = planes.permute(2, 0, 1)
        planes = planes / self.unit
        # a wrong unit makes everything dark, or grey as red as red
        red = (planes[self.red] > 0.6) & (planes[1] < 0.4) & (planes[2 - self.red] < 0.4)
        red = red & (planes.amax() <= 1)
        height, width = planes.shape[1:]
        found = []
        for axis, length in ((0, width), (1, height)):
            positions = torch.arange(length)
            present = red.any(dim=axis)
            found.append(torch.where(present, positions, length).amin().float())
            found.append((torch.where(present, positions, -1).amax() + 1).float())
        left, right, top, bottom = found
        return torch.stack([left, top, right, bottom])[None]

    def boxes(self, pixels: Tensor) -> Tensor:
        """(1, 4) centre and size, px."""
        edges = self.edges(pixels)
        return torch.cat([(edges[:, :2] + edges[:, 2:]) / 2, edges[:, 2:] - edges[:, :2]], 1)


def candidates(box: Tensor, *, person: int, num_classes: int, objectness: bool) -> Tensor:
    """(3, 4 + C) or (3, 5 + C): the box as a person, as another class, and as nothing."""
    scores = torch.zeros(3, num_classes)
    scores[0, person] = SCORE
    scores[1, (person + 1) % num_classes] = SCORE
    scores[1, person] = SCORE / 2
    scores[2] = 0.01
    parts = [box.expand(3, 4), scores]
    if objectness:
        parts.insert(1, torch.tensor([[0.5], [0.5], [0.0]]))
    return torch.cat(parts, dim=1)


class Columns(RedFinder):
    """(1, 4 + C + extra, N)."""

    def __init__(self, person: int = 0, num_classes: int = NUM_CLASSES, extra: int = 0) -> None:
        super().__init__()
        self.person, self.num_classes, self.extra = person, num_classes, extra

    def forward(self, images: Tensor) -> Tensor:
        rows = candidates(
            self.boxes(images), person=self.person, num_classes=self.num_classes, objectness=False
        )
        rows = torch.cat([rows, torch.ones(3, self.extra)], 1)
        return nn.functional.pad(rows, (0, 0, 0, 200 - 3)).T[None]


class Rows(RedFinder):
    """(1, N, 5 + C) with three rows for each cell."""

    def __init__(self, rows: int, num_classes: int = NUM_CLASSES) -> None:
        super().__init__()
        self.rows, self.num_classes = rows, num_classes

    def forward(self, images: Tensor) -> Tensor:
        rows = candidates(
            self.boxes(images), person=0, num_classes=self.num_classes, objectness=True
        )
        return nn.functional.pad(rows, (0, 0, 0, self.rows - 3))[None]


class Cells(RedFinder):
    """(1, N, 5 + C) with a row for each cell; decoded, or as offsets and logarithms.

    Args:
        cells: (N, 3) corner x, y and side of each cell, px.
        raw: Whether boxes are left undecoded.
    """

    def __init__(self, cells: Array, *, raw: bool) -> None:
        super().__init__(unit=255, red=2)
        self.cells = torch.from_numpy(cells).float()
        self.raw = raw

    def forward(self, images: Tensor) -> Tensor:
        scored = candidates(self.boxes(images), person=0, num_classes=80, objectness=True)
        last = len(self.cells) - 3
        rows = nn.functional.pad(scored, (0, 0, last, 0))
        corners, sides = self.cells[:, :2], self.cells[:, 2:]
        middles = torch.cat([corners + sides / 2, sides.expand(-1, 2)], 1)
        boxes = torch.cat([middles[:last], rows[last:, :4]])
        if self.raw:
            sizes = torch.log(boxes[:, 2:].clamp(min=1e-3) / sides)
            boxes = torch.cat([(boxes[:, :2] - corners) / sides, sizes], 1)
        return torch.cat([boxes, rows[:, 4:]], 1)[None]


class EndToEnd(RedFinder):
    """(1, N, 6), beside it a map that means nothing here."""

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        edges = self.edges(images).expand(2, 4)
        rows = torch.cat([edges, torch.tensor([[SCORE, 0.0], [SCORE, 1.0]])], 1)
        return nn.functional.pad(rows, (0, 0, 0, 98))[None], torch.zeros(1, 8, 16, 16)
