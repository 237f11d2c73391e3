"""A detector of the user's own: any ONNX file whose outputs have a known layout, on the CPU.

What outputs mean is left to `onnx_layouts`, suppression and thresholds to `detector`. How images
are prepared follows from the layout, from the graph's metadata, and from `config.json` and
`preprocessor_config.json` beside the file, where a transformers model was exported, which
`onnx_settings` reads; the digest covers all of them. Each image goes through the graph alone: the
arithmetic of a batch depends on its size, and on a CPU it saves nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sapiens_batch.errors import InputError, SpecError
from sapiens_batch.images.decoded import DecodedImage
from sapiens_batch.persons.base import Detector, named_person
from sapiens_batch.persons.onnx_layouts import (
    SUPPORTED,
    CellLayout,
    Dimension,
    Layout,
    PixelRules,
    Port,
    QueryLayout,
    Size,
    mask_prototypes,
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
from sapiens_batch.persons.onnx_session import open_session, refusals
from sapiens_batch.persons.onnx_settings import (
    CONFIG,
    METADATA,
    PROCESSOR,
    Settings,
    channels,
    class_names,
    is_on,
    metadata_size,
    parse_json,
    positive_number,
    processor_edges,
    processor_size,
)
from sapiens_batch.records import Array
from sapiens_batch.storage.addresses import absolute_uri, parent_uri
from sapiens_batch.storage.input_errors import MissingInputError
from sapiens_batch.storage.reading import read_input

if TYPE_CHECKING:
    import onnxruntime

# Changes with the code that decides what the model sees, or what its outputs mean.
_VERSION = "1"
# Of one-stage models whose graph leaves the size to the caller and whose metadata names none.
_USUAL_SIZE = (640, 640)
# The classes of COCO: 80, or its 91 category numbers with gaps.
_USUAL_PERSON = {1: 0, 80: 0, 91: 1}
_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)
# (height, width), px, that a graph without a size of its own is tried with: neither square nor of
# the aspect that exporters trace, so that one that is bound to a size is found out.
_TRIAL_PHOTO = (640, 410)
# Tasks of the exporter that writes its name of the task into the metadata.
_TASKS_WITH_BOXES = ("detect", "segment", "pose")


@dataclass(frozen=True)
class OnnxDetector(Detector):
    """An ONNX detector.

    Attributes:
        session: The graph.
        image: Its input.
        layout: What its outputs mean.
        person_class: Number of the class `person`.
        edges: Shortest and longest side that an image is resized to, where the size is neither the
            graph's nor fixed.
        digest: Digest of everything that decides the candidates.
    """

    session: onnxruntime.InferenceSession
    image: ImageInput
    layout: Layout
    person_class: int
    edges: tuple[int, int]
    digest: str

    def detect_one(self, image: DecodedImage) -> tuple[Array, Array]:
        """See `Detector.detect_one`."""
        height, width = image.pixels.shape[:2]
        size = self.image.size or size_between(height, width, *self.edges)
        canvas = place(image.pixels, size, self.layout.rules.placing)
        found = run(self.session, self.image, self.layout, canvas.pixels)
        edges, scores = self.layout.persons(found, size, self.person_class)
        height, width = image.size
        scale = np.array([width / canvas.content[1], height / canvas.content[0]] * 2)
        with np.errstate(invalid="ignore", over="ignore"):  # of boxes that are not finite
            corners = (edges - [canvas.left, canvas.top] * 2) * scale
            return corners.astype(np.float32), scores.astype(np.float32)


def load_onnx_detector(model: str, person_class: int | None) -> OnnxDetector:
    """Load a file, and run it once.

    Args:
        model: Its path or address.
        person_class: Number of the class `person`; None to find it.

    Raises:
        DependencyError: onnxruntime, or the package for the address, is not installed.
        SpecError: There is no such file, its inputs or outputs are unknown or may mean two things,
            what stands beside it makes no sense, it cannot be run on an image, or it is not known
            which class is a person.
    """
    name, uri = f"persons.detector.model: {model}", absolute_uri(model)
    data = _read(uri, name)
    session = open_session(data, model)
    metadata = Settings(name, METADATA, session.get_modelmeta().custom_metadata_map)
    if (task := metadata.get("task", "detect")) not in _TASKS_WITH_BOXES:
        raise SpecError(f"{name} is for the task {task}, which gives no upright boxes")
    ports = [_port(one) for one in session.get_outputs()]
    image = find_image_input([_port(one) for one in session.get_inputs()], name)
    queries = any(port.name == "pred_boxes" for port in ports)
    beside = [_beside(uri, one, name) if queries else b"" for one in (CONFIG, PROCESSOR)]
    config, processor = map(parse_json, beside, (name, name), (CONFIG, PROCESSOR))
    names = class_names(metadata, config)
    if image.size is None:
        own = processor_size(processor) if queries else metadata_size(metadata) or _USUAL_SIZE
        image = replace(image, size=own)
    layout = _layout(ports, image, len(names) or None, name)
    if isinstance(layout, QueryLayout):
        layout = replace(layout, rules=_query_rules(processor, layout))
    edges = (0, 0) if image.size else processor_edges(processor)
    trial = image.size or size_between(*_TRIAL_PHOTO, *edges)
    found_on_grey = _try(session, image, layout, ports, trial, name)
    if isinstance(layout, CellLayout):
        layout = _settled(layout, found_on_grey, name)
    person = _person_class(person_class, names, layout.num_classes, name)
    digest = hashlib.sha256(f"{_VERSION} {layout!r} {person}".encode())
    for part in (data, *beside):
        digest.update(hashlib.sha256(part).digest())
    return OnnxDetector(session, image, layout, person, edges, digest.hexdigest())


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


def _port(node: Any) -> Port:
    return Port(node.name, tuple(node.shape), node.type)


def _layout(ports: Sequence[Port], image: ImageInput, num_names: int | None, name: str) -> Layout:
    """What the outputs mean, if they can mean one thing only."""
    scale = 1.0 if image.unscaled else 1 / 255
    fitting = recognise(ports, image.size, num_names, scale=scale)
    shown = ", ".join(str(port) for port in ports)
    if not fitting:
        raise SpecError(f"{name} has the outputs {shown}; supported are {SUPPORTED}")
    if len(fitting) > 1:
        meanings = " or ".join(f"`{layout.name}`" for layout in fitting)
        raise SpecError(
            f"{name} has the outputs {shown}, which may be {meanings}; export it with fixed "
            "shapes, for another input size, or with the `names` of its classes in the metadata"
        )
    (layout,) = fitting
    if num_names is None and (prototypes := mask_prototypes(ports, layout)):
        raise SpecError(
            f"{name} has beside its candidates {', '.join(str(port) for port in prototypes)}, as "
            "models for masks have; which values are classes is unknown: export it with the "
            "`names` of its classes in the metadata, or without masks"
        )
    return layout


def _try(
    session: onnxruntime.InferenceSession,
    image: ImageInput,
    layout: Layout,
    ports: Sequence[Port],
    size: Size,
    name: str,
) -> list[Array]:
    """What the graph finds on a grey image, so that one that cannot be run fails at the start."""
    shown = f"an image of {size[1]} x {size[0]} px"
    try:
        found = run(session, image, layout, np.full((*size, 3), GREY, np.uint8))
    except refusals() as error:
        raise SpecError(
            f"{name} cannot be run on {shown} ({error}); export it for this size, or give the "
            f"size that it was exported for in {PROCESSOR} or as `imgsz` in its metadata"
        ) from error
    declared = {port.name: port for port in ports}
    for array, port in zip(found, (declared[one] for one in layout.outputs), strict=True):
        if not _agrees(array.shape, port.shape):
            raise SpecError(
                f"{name} declares the output {port} and gives {array.shape} for {shown}; export "
                "it for one image at a time, with the shapes that it has"
            )
    return found


def _agrees(shape: tuple[int, ...], declared: tuple[Dimension, ...]) -> bool:
    return (
        len(shape) == len(declared)
        and (len(shape) == 2 or shape[0] == 1)
        and all(
            length == wanted or not isinstance(wanted, int)
            for length, wanted in zip(shape, declared, strict=True)
        )
    )


def _settled(layout: CellLayout, found_on_grey: Sequence[Array], name: str) -> CellLayout:
    settled = layout.settled(found_on_grey)
    if settled is None:
        raise SpecError(
            f"{name} finds boxes that are not finite on a grey image, so it is unknown whether "
            "they are decoded; export it in a higher precision"
        )
    return settled


def _query_rules(processor: Settings, layout: QueryLayout) -> PixelRules:
    """As the processor says that was published with the model, else as its family does."""
    scale = 1.0
    if is_on(processor, "rescale"):
        scale = positive_number(processor, "rescale_factor", 1 / 255)
    # models with 80 classes, RT-DETR and its kin, see plain values from 0 to 1
    if not is_on(processor, "normalize", otherwise=layout.num_classes != 80):
        return PixelRules("stretched", scale=scale)
    mean = channels(processor, "image_mean", _IMAGENET_MEAN)
    std = channels(processor, "image_std", _IMAGENET_STD, positive=True)
    return PixelRules("stretched", scale=scale, mean=mean, std=std)


def _person_class(
    given: int | None, names: Mapping[int, str], num_classes: int | None, name: str
) -> int:
    if given is not None:
        if num_classes is not None and given >= num_classes:
            raise SpecError(
                f"persons.detector.person_class: {given}, but the model knows {num_classes} classes"
            )
        return given
    if names:
        return named_person(names, name)
    if num_classes not in _USUAL_PERSON:
        known = "an unknown number of" if num_classes is None else str(num_classes)
        raise SpecError(
            f"{name} tells {known} classes apart and does not name them; give the number of the "
            "class `person` as persons.detector.person_class"
        )
    return _USUAL_PERSON[num_classes]
