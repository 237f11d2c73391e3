"""A detector of the user's own: any ONNX file whose outputs have a known layout, on the CPU.

What outputs mean is left to `onnx_layouts`, suppression and thresholds to `detector`. How images
are prepared follows from the layout, from the graph's metadata, and from `config.json` and
`preprocessor_config.json` beside the file, where a transformers model was exported; the digest
covers all of them. Each image goes through the graph alone: the arithmetic of a batch depends on
its size, and on a CPU it saves nothing.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sapiens_batch.errors import InputError, SpecError
from sapiens_batch.images.decoded import DecodedImage
from sapiens_batch.persons.base import Detector
from sapiens_batch.persons.onnx_layouts import (
    SUPPORTED,
    CellLayout,
    Layout,
    PixelRules,
    Port,
    QueryLayout,
    Size,
    recognise,
)
from sapiens_batch.persons.onnx_pixels import (
    GREY,
    ImageInput,
    find_image_input,
    place,
    run,
    size_between,
)
from sapiens_batch.persons.onnx_session import open_session
from sapiens_batch.records import Array
from sapiens_batch.storage.addresses import absolute_uri, parent_uri
from sapiens_batch.storage.filesystems import MissingInputError
from sapiens_batch.storage.inputs import read_input

if TYPE_CHECKING:
    import onnxruntime

# Changes with the code that decides what the model sees, or what its outputs mean.
_VERSION = "1"
_PERSON = "person"
_CONFIG, _PROCESSOR = "config.json", "preprocessor_config.json"
# Of one-stage models whose graph leaves the size to the caller and whose metadata names none.
_USUAL_SIZE = (640, 640)
# The classes of COCO: 80, or its 91 category numbers with gaps.
_USUAL_PERSON = {1: 0, 80: 0, 91: 1}
_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)
_SHORTEST_EDGE, _LONGEST_EDGE = 800, 1333
# Tasks of the exporter that writes its name of the task into the metadata.
_TASKS_WITH_BOXES = ("detect", "segment", "pose")


class OnnxDetector(Detector):
    """An ONNX detector.

    Args:
        session: The graph.
        image: Its input.
        layout: What its outputs mean.
        person: Number of the class `person`.
        edges: Shortest and longest side that an image is resized to, where the size is neither the
            graph's nor fixed.
        digest: Digest of everything that decides the candidates.
    """

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        image: ImageInput,
        layout: Layout,
        *,
        person: int,
        edges: tuple[int, int],
        digest: str,
    ) -> None:
        self._session = session
        self._image = image
        self._layout = layout
        self._person = person
        self._edges = edges
        self._digest = digest

    @property
    def digest(self) -> str:
        """See `Detector.digest`."""
        return self._digest

    @property
    def layout(self) -> Layout:
        """What the outputs were taken for."""
        return self._layout

    @property
    def person_class(self) -> int:
        """Number of the class that was taken for persons."""
        return self._person

    def detect(self, images: Sequence[DecodedImage]) -> list[tuple[Array, Array]]:
        """See `Detector.detect`."""
        return [self._detect(image) for image in images]

    def _detect(self, image: DecodedImage) -> tuple[Array, Array]:
        canvas = place(image.pixels, self._size(image.pixels), self._layout.rules.placing)
        found = run(self._session, self._image, self._layout, canvas.pixels)
        size = (canvas.pixels.shape[0], canvas.pixels.shape[1])
        edges, scores = self._layout.persons(found, size, self._person)
        height, width = image.size
        scale = np.array([width / canvas.content[1], height / canvas.content[0]] * 2)
        corners = (edges - [canvas.left, canvas.top] * 2) * scale
        return corners.astype(np.float32), scores.astype(np.float32)

    def _size(self, pixels: Array) -> Size:
        if self._image.size is not None:
            return self._image.size
        return size_between(pixels.shape[0], pixels.shape[1], *self._edges)


def load_onnx_detector(model: str, person_class: int | None) -> OnnxDetector:
    """Load a file.

    Args:
        model: Its path or address.
        person_class: Number of the class `person`; None to find it.

    Raises:
        DependencyError: onnxruntime, or the package for the address, is not installed.
        SpecError: There is no such file, its inputs or outputs are unknown, or it is not known
            which class is a person.
    """
    name, uri = f"persons.detector.model: {model}", absolute_uri(model)
    data = _read(uri, name)
    session = open_session(data, model)
    metadata = dict(session.get_modelmeta().custom_metadata_map)
    if (task := metadata.get("task", "detect")) not in _TASKS_WITH_BOXES:
        raise SpecError(f"{name} is for the task {task}, which gives no upright boxes")
    ports = [_port(one) for one in session.get_outputs()]
    image = find_image_input([_port(one) for one in session.get_inputs()], name)
    queries = any(port.name == "pred_boxes" for port in ports)
    beside = [_beside(uri, one, name) if queries else b"" for one in (_CONFIG, _PROCESSOR)]
    config, processor = (_parsed(one, name) for one in beside)
    class_names = _class_names(metadata, config)
    image = replace(image, size=image.size or _own_size(metadata, processor, queries, name))
    scale = 1.0 if image.unscaled else 1 / 255
    layout = recognise(ports, image.size, len(class_names) if class_names else None, scale=scale)
    if layout is None:
        found = ", ".join(str(port) for port in ports)
        raise SpecError(f"{name} has the outputs {found}; supported are {SUPPORTED}")
    if isinstance(layout, QueryLayout):
        layout = replace(layout, rules=_query_rules(processor, layout))
    elif isinstance(layout, CellLayout):
        grey = np.full((*(image.size or _USUAL_SIZE), 3), GREY, np.uint8)
        layout = layout.settled(run(session, image, layout, grey))
    person = _person_class(person_class, class_names, layout.num_classes, name)
    digest = hashlib.sha256(f"{_VERSION} {layout!r} {person}".encode())
    for part in (data, *beside):
        digest.update(hashlib.sha256(part).digest())
    return OnnxDetector(
        session, image, layout, person=person, edges=_edges(processor), digest=digest.hexdigest()
    )


def _read(uri: str, name: str) -> bytes:
    try:
        return read_input(uri)
    except (InputError, OSError) as error:
        raise SpecError(f"{name} cannot be read: {error}") from error


def _beside(uri: str, file_name: str, name: str) -> bytes:
    """A file of the model's folder, or of the one above a folder `onnx`; empty if there is none."""
    folders = [parent_uri(uri)]
    if folders[0].endswith("/onnx"):
        folders.append(parent_uri(folders[0]))
    for folder in folders:
        try:
            return _read(f"{folder.rstrip('/')}/{file_name}", name)
        except SpecError as error:
            if not isinstance(error.__cause__, MissingInputError):
                raise
    return b""


def _parsed(data: bytes, name: str) -> dict[str, Any]:
    try:
        found = json.loads(data or b"{}")
    except ValueError as error:
        raise SpecError(f"{name}: the .json beside it cannot be parsed ({error})") from error
    return found if isinstance(found, dict) else {}


def _port(node: Any) -> Port:
    return Port(node.name, tuple(node.shape), node.type)


def _own_size(
    metadata: Mapping[str, str], processor: Mapping[str, Any], queries: bool, name: str
) -> Size | None:
    """The input size of a graph that leaves it open; None where it follows from each image."""
    if not queries:
        found = _literal(metadata.get("imgsz", ""))
        sides = found if isinstance(found, (list, tuple)) else [found, found]
        fits = len(sides) == 2 and all(isinstance(side, int) and side > 0 for side in sides)
        return (int(sides[0]), int(sides[1])) if fits else _USUAL_SIZE
    size = processor.get("size", {})
    if {"height", "width"} <= size.keys():
        return int(size["height"]), int(size["width"])
    if size and "shortest_edge" not in size:
        raise SpecError(
            f"{name}: {_PROCESSOR} has the size {size}; give height and width, or shortest_edge "
            "and longest_edge"
        )
    return None


def _edges(processor: Mapping[str, Any]) -> tuple[int, int]:
    size = processor.get("size", {})
    shortest = int(size.get("shortest_edge", _SHORTEST_EDGE))
    return shortest, int(size.get("longest_edge", max(shortest, _LONGEST_EDGE)))


def _query_rules(processor: Mapping[str, Any], layout: QueryLayout) -> PixelRules:
    """As the processor says that was published with the model, else as its family does."""
    scale = float(processor.get("rescale_factor", 1 / 255)) if _on(processor, "rescale") else 1.0
    # models with 80 classes, RT-DETR and its kin, see plain values from 0 to 1
    if not _on(processor, "normalize", otherwise=layout.num_classes != 80):
        return PixelRules("stretched", scale=scale)
    mean = tuple(processor.get("image_mean", _IMAGENET_MEAN))
    std = tuple(processor.get("image_std", _IMAGENET_STD))
    return PixelRules("stretched", scale=scale, mean=mean, std=std)


def _on(processor: Mapping[str, Any], step: str, *, otherwise: bool = True) -> bool:
    return bool(processor.get(f"do_{step}", otherwise))


def _class_names(metadata: Mapping[str, str], config: Mapping[str, Any]) -> dict[int, str]:
    """Names by number; empty where none are given."""
    found = _literal(metadata.get("names", ""))
    if isinstance(found, (list, tuple)):
        found = dict(enumerate(found))
    if not isinstance(found, dict) or not found:
        found = config.get("id2label", {})
    return {int(number): str(label) for number, label in found.items()}


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None


def _person_class(
    given: int | None, names: Mapping[int, str], num_classes: int | None, name: str
) -> int:
    if given is not None:
        if num_classes is not None and given >= num_classes:
            raise SpecError(
                f"persons.detector.person_class: {given}, but the model knows {num_classes} classes"
            )
        return given
    for number, label in names.items():
        if label.lower() == _PERSON:
            return number
    if names:
        shown = ", ".join(list(names.values())[:10])
        raise SpecError(f"{name} has no class `{_PERSON}`; its classes begin with {shown}")
    if num_classes not in _USUAL_PERSON:
        known = "an unknown number of" if num_classes is None else str(num_classes)
        raise SpecError(
            f"{name} tells {known} classes apart and does not name them; give the number of the "
            "class `person` as persons.detector.person_class"
        )
    return _USUAL_PERSON[num_classes]
