"""Images in Python's hands: the views that they become, and their labels in source pixels.

For notebooks and tests; a job prepares views in workers instead. Decoding and cutting views is left
to `images`. A box from which no view can be cut is an error here, not a row with a reason.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image, ImageOps

from sapiens_batch.errors import InputError
from sapiens_batch.images import frames
from sapiens_batch.images.collector import ViewCollector
from sapiens_batch.images.decode import decode
from sapiens_batch.images.pixels import to_rgb
from sapiens_batch.labels import label_rows
from sapiens_batch.persons.boxes import sort_out, whole_image
from sapiens_batch.records import (
    Array,
    LabelSchema,
    Level,
    TaskLabels,
    TaskName,
    ViewBatch,
    ViewSpec,
)
from sapiens_batch.spec.job import PersonsSpec
from sapiens_batch.tasks.base import Task

ImageInput = bytes | str | os.PathLike[str] | Image.Image | Array
Boxes = Array | Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class ImageLabels:
    """All labels of one image.

    Attributes:
        size: (height, width) of the upright image, px.
        boxes: (P, 4) float32 COCO xywh of its persons.
        schemas: What the labels mean, by task.
        labels: By task: one row for the image, or one for each person.
    """

    size: tuple[int, int]
    boxes: Array
    schemas: Mapping[TaskName, LabelSchema]
    labels: Mapping[TaskName, TaskLabels]

    def column(self, task: TaskName, name: str) -> Array:
        """A label column: its value for the image, or (P, ...) values of the persons.

        Raises:
            KeyError: There is no such task or column.
        """
        schema, columns = self._schema(task), self.labels[task].columns
        if name not in columns:
            there_are = ", ".join(columns) or "none"
            hint = "" if schema.array is None else f"; `map({task!r})` has its array"
            raise KeyError(f"task {task} has no column {name!r}; there are {there_are}{hint}")
        return columns[name] if schema.level is Level.PERSON else columns[name][0]

    def map(self, task: TaskName, person: int | None = None) -> Array:
        """A dense label in source pixels.

        Class masks take the nearest frame pixel, numeric maps are bilinear, normals are made unit
        again. What the frame does not show is fill.

        Args:
            task: A task with an array.
            person: Number of the person, for tasks that label persons.

        Returns:
            (..., height, width) of the source, the other axes as in the schema.

        Raises:
            KeyError: There is no such task.
            ValueError: The task has no array, or `person` does not go with its level.
        """
        schema, labels = self._schema(task), self.labels[task]
        if schema.array is None or labels.array is None:
            raise ValueError(f"task {task} fills columns only, it has no map")
        if (person is None) is not (schema.level is Level.IMAGE):
            raise ValueError(f"task {task} labels one {schema.level}: person is {person}")
        row = person or 0
        frame = labels.frames[row]
        mapped = frames.to_source(
            labels.array[row][..., : frame.height, : frame.width],
            frame.to_source,
            self.size,
            interpolation=frames.interpolation_of(schema.array),
            fill_value=schema.array.fill_value,
        )
        return frames.renormalize(mapped, 0) if task == "normal" else mapped

    def _schema(self, task: TaskName) -> LabelSchema:
        if task not in self.schemas:
            raise KeyError(f"no task {task!r}; the labeler has {', '.join(self.schemas)}")
        return self.schemas[task]


class Images:
    """Images with the persons in them.

    Args:
        images: The images.
        boxes: COCO xywh for each, or None.
        persons: Whether an image without given boxes is one person.
        needs_persons: Tasks that label persons.

    Raises:
        InputError: Images are no list, or boxes are needed and missing, or of another number than
            images.
    """

    def __init__(
        self,
        images: Sequence[ImageInput],
        boxes: Sequence[Boxes | None] | None,
        *,
        persons: Literal["given", "whole_image"],
        needs_persons: Sequence[TaskName],
    ) -> None:
        if isinstance(images, bytes | str | os.PathLike | Image.Image):
            raise InputError(
                f"images is one {type(images).__name__}: give a list, even of a single image"
            )
        if boxes is None and needs_persons and persons == "given":
            raise InputError(
                f"{', '.join(needs_persons)} label persons, but no boxes were given: pass "
                'boxes, or persons="whole_image" to take each image as one person'
            )
        if boxes is not None and len(boxes) != len(images):
            raise InputError(f"{len(boxes)} lists of boxes for {len(images)} images: give one each")
        self._images = images
        self._boxes = boxes
        self._whole = boxes is None and persons == "whole_image"

    def views(self, specs: Sequence[ViewSpec], start: int, stop: int) -> OpenedImages:
        """Open images `[start, stop)` and make their views.

        Raises:
            InputError: An image is none or a file cannot be read, or no view can be cut from a box.
            SampleError: An encoded file cannot be decoded.
        """
        views = ViewCollector(specs, stop - start)
        sizes: list[tuple[int, int]] = []
        boxes: list[Array] = []
        num_persons = 0
        for index, image in enumerate(self._images[start:stop], start=start):
            pixels = _pixels(image, index)
            sizes.append((pixels.shape[0], pixels.shape[1]))
            boxes.append(self._boxes_of(index, sizes[-1]))
            persons = range(num_persons, num_persons + len(boxes[-1]))
            views.add(pixels, index - start, boxes[-1], persons)
            num_persons = persons.stop
        return OpenedImages(tuple(sizes), tuple(boxes), views.batches())

    def _boxes_of(self, index: int, size: tuple[int, int]) -> Array:
        if self._whole:
            return whole_image(size).boxes
        given = None if self._boxes is None else self._boxes[index]
        if given is None:
            return np.empty((0, 4), np.float32)
        boxes = np.asarray(given, np.float32)
        found = sort_out(boxes, None, size, PersonsSpec(max_persons=max(1, len(boxes))))
        if found.refused:
            raise InputError(f"image {index}: {found.refused[0].problem.message}")
        return found.boxes


@dataclass(frozen=True, slots=True)
class OpenedImages:
    """Some images in the form that models take.

    Attributes:
        sizes: (height, width) of each.
        boxes: (P, 4) persons of each.
        batches: Their views, by spec.
    """

    sizes: tuple[tuple[int, int], ...]
    boxes: tuple[Array, ...]
    batches: Mapping[ViewSpec, ViewBatch]

    def split(
        self, labels: Mapping[TaskName, TaskLabels], tasks: Mapping[TaskName, Task]
    ) -> list[ImageLabels]:
        """Labels of all views as labels of each image."""
        schemas = {name: task.schema for name, task in tasks.items()}
        first = np.cumsum([0, *(len(boxes) for boxes in self.boxes)]).tolist()
        return [
            ImageLabels(
                size,
                boxes,
                schemas,
                {
                    name: label_rows(made, index, index + 1)
                    if schemas[name].level is Level.IMAGE
                    else label_rows(made, first[index], first[index + 1])
                    for name, made in labels.items()
                },
            )
            for index, (size, boxes) in enumerate(zip(self.sizes, self.boxes, strict=True))
        ]


def _read(uri: str) -> bytes:
    """The image file at a path or address."""
    # the stores behind addresses are not imported for those who hand over images
    from sapiens_batch.storage.addresses import absolute_uri
    from sapiens_batch.storage.reading import read_input

    return read_input(absolute_uri(uri))


def _pixels(image: ImageInput, index: int) -> Array:
    """(H, W, 3) uint8 RGB, upright."""
    if isinstance(image, bytes):
        return decode(image).pixels
    if isinstance(image, str | os.PathLike):
        return decode(_read(os.fspath(image))).pixels
    if isinstance(image, Image.Image):
        return to_rgb(ImageOps.exif_transpose(image))[0]
    if not isinstance(image, np.ndarray):
        raise InputError(
            f"image {index} is a {type(image).__name__}: give a path or address, the bytes of an "
            "image file, a Pillow image, or a uint8 array (H, W, 3) RGB or (H, W) grey"
        )
    pixels = np.repeat(image[..., None], 3, axis=2) if image.ndim == 2 else image
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        raise InputError(
            f"image {index} is an array of {image.dtype} {image.shape}: give uint8 (H, W, 3) RGB "
            "or (H, W) grey"
        )
    return np.ascontiguousarray(pixels)
