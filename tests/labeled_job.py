"""A committed job with drawn labels, of any number of samples, made without models.

The pictures are crops of the bundled photos in tars beside the job; the labels are those of
`tests.figures`, written by the pipeline's own writer and sealed by its own code. Of 20 samples, one
is cut short, one is no image at all or gave no finite label, and about three show nobody; of 25,
one is a near-duplicate of the one before it.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import cv2
import numpy as np

from sapiens_batch.images.geometry import frame_for
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.plan import write_plan
from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.protocol.seal import seal_shard
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.records import (
    Affine,
    Array,
    Frame,
    LabelSchema,
    Problem,
    Sample,
    Shard,
    Status,
    TaskLabels,
    TaskName,
)
from sapiens_batch.sinks import label_schema as schema_json
from sapiens_batch.sources import make_source
from sapiens_batch.spec.job import JobSpec
from sapiens_batch.spec.loading import parse_spec
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.flow import LabeledChunk, PreparedPerson, PreparedSample, TaskRows
from sapiens_batch.stages.write import ChunkWriter
from sapiens_batch.storage import open_store
from tests import figures
from tests.label_schemas import EMBEDDING_SIZE, label_schemas, vocabulary

DIGEST = "d" * 64
NUM_CLUSTERS = 6
PHOTO_CYCLE = ("astronaut", "portraits", "photographer", "astronaut", "cat", "portraits")
LIMITS = {"decode.truncated": 7, "decode.unknown_format": 13, "label.non_finite": 33}


@dataclass(frozen=True)
class Content:
    """What a sample shows: a crop of a photo, scaled and made lighter or darker.

    Attributes:
        photo: Name of the bundled photo.
        to_sample: From photo to sample pixels.
        size: (height, width) of the sample.
        gain: Factor on the pixels.
        problem: Why the sample is to be quarantined, or empty.
    """

    photo: str
    to_sample: Affine
    size: tuple[int, int]
    gain: float
    problem: str

    @property
    def people(self) -> tuple[figures.Figure, ...]:
        """The persons, in sample pixels."""
        return tuple(one.moved(self.to_sample) for one in figures.FIGURES[self.photo])


def content_of(number: int, seed: int) -> Content:
    """What sample `number` of the corpus shows; a near-duplicate shows what the one before does."""
    shown = number - 1 if number % 25 == 24 else number
    rng = np.random.default_rng([seed, shown])
    photo = PHOTO_CYCLE[shown % len(PHOTO_CYCLE)]
    height, width = _photo(photo).shape[:2]
    scale = float(rng.uniform(0.5, 0.95))
    left, top = (rng.uniform(0, 0.08, 2) * (width, height)).round()
    size = (round((height - top) * scale), round((width - left) * scale))
    problem = next((name for name, place in LIMITS.items() if number % 40 == place), "")
    to_sample = Affine(scale, scale, -left * scale, -top * scale)
    return Content(photo, to_sample, size, float(rng.uniform(0.6, 1.15)), problem)


def encode(content: Content, quality: int = 88) -> bytes:
    """The sample's JPEG, or what is left of it."""
    photo = _photo(content.photo)
    x, y = (round(-offset / content.to_sample.scale_x) for offset in content.to_sample.as_row()[2:])
    picture = cv2.resize(photo[y:, x:], content.size[::-1], interpolation=cv2.INTER_AREA)
    lit = np.clip(picture * content.gain, 0, 255).astype(np.uint8)
    data = cv2.imencode(".jpg", lit[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
    if content.problem == "decode.truncated":
        return data[: len(data) // 2]
    return b"<html>gone</html>" if content.problem == "decode.unknown_format" else data


@cache
def _photo(name: str) -> Array:
    path = files("sapiens_batch.samples").joinpath("photos", f"{name}.jpg")
    pixels = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    assert pixels is not None
    return np.ascontiguousarray(pixels[..., ::-1])


def make_labeled_job(
    path: Path,
    *,
    num_samples: int,
    chunk_samples: int = 32,
    seed: int = 0,
    shard_samples: int = 500,
    row_size: tuple[int, int] = (128, 96),
    corpus: Path | None = None,
    label_seed: int = 0,
    tasks: Sequence[TaskName] = ("embedding", "pose", "seg", "normal", "pointmap"),
    demo: bool = False,
) -> Path:
    """Write a corpus and a job over it.

    Args:
        path: Folder of the job; returned.
        num_samples: Samples of the corpus.
        chunk_samples: Samples per chunk.
        seed: Decides the pictures.
        shard_samples: Samples per tar.
        row_size: (height, width) of an array row.
        corpus: Folder of the tars; `<path>-corpus` by default. Tars that are there are kept, so
            that two jobs can label one corpus.
        label_seed: Decides the noise on the labels.
        tasks: Tasks to label.
        demo: Whether the labels say that random weights made them.
    """
    folder = corpus or path.with_name(f"{path.name}-corpus")
    write_corpus(folder, num_samples, shard_samples, seed)
    spec = _spec(path, folder, chunk_samples, tasks)
    every = label_schemas(row_size, demo=demo)
    schemas = {task: every[task] for task in tasks}
    label_corpus(spec, schemas, num_samples, shard_samples, seeds=(seed, label_seed))
    return path


def label_corpus(
    spec: JobSpec,
    schemas: Mapping[TaskName, LabelSchema],
    num_samples: int,
    shard_samples: int,
    *,
    seeds: tuple[int, int] = (0, 0),
) -> None:
    """Make a job over what `write_corpus` wrote, wherever the spec says that both lie.

    Args:
        spec: The job.
        schemas: What is labeled.
        num_samples: Samples of the corpus.
        shard_samples: Samples per tar.
        seeds: Decide the pictures, and the noise on the labels.
    """
    store = open_store(spec.output.uri, spec.output.storage_options)
    job = JobDocument(
        name=spec.name,
        spec=spec.public_dict(),
        spec_digest=DIGEST,
        schemas=tuple(schema_json.to_json(one) for one in schemas.values()),
        licences={"drawn-0.1b": "CC0-1.0"},
        versions={"sapiens_batch": "0.1.0"},
    )
    Manifest.create(store, job)
    shards = list(make_source(spec.source).plan())
    write_plan(store, shards)
    context = JobContext(
        spec=spec, checkpoints={}, schemas=schemas, task_views={}, finds_persons=True,
        spec_digest=DIGEST, store=store,
    )  # fmt: skip
    for number, shard in enumerate(shards):
        first = number * shard_samples
        count = min(shard_samples, num_samples - first)
        _label_shard(context, shard, first, count, *seeds)


def write_corpus(folder: Path, num_samples: int, shard_samples: int, seed: int) -> None:
    """Tars of pictures with their boxes; those that exist are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, num_samples, shard_samples)):
        path = folder / f"{number:05d}.tar"
        if path.exists():
            continue
        with tarfile.open(path, "w") as tar:
            for sample in range(first, min(first + shard_samples, num_samples)):
                for suffix, data in _members(sample, seed).items():
                    member = tarfile.TarInfo(f"{_key(sample)}.{suffix}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def _members(number: int, seed: int) -> dict[str, bytes]:
    content = content_of(number, seed)
    boxes = [list(person.box) for person in content.people]
    return {"jpg": _encoded(number, seed), "json": json.dumps({"boxes": boxes}).encode()}


def _encoded(number: int, seed: int) -> bytes:
    return encode(content_of(number, seed), 80 if number % 25 == 24 else 88)


def _key(number: int) -> str:
    return f"sample-{number:06d}"


def _spec(path: Path, corpus: Path, chunk_samples: int, tasks: Sequence[TaskName]) -> JobSpec:
    return parse_spec(
        {
            "name": path.name,
            "source": {
                "format": "webdataset", "uri": str(corpus / "*.tar"), "boxes": "boxes",
                "companion": "none",
            },
            "tasks": {task: {"checkpoint": "demo"} for task in tasks},
            "output": {"uri": str(path), "chunk_samples": chunk_samples},
        }
    )  # fmt: skip


def _label_shard(
    context: JobContext, shard: Shard, first: int, count: int, seed: int, label_seed: int
) -> None:
    writer = ChunkWriter(context.store, context.schemas, (), context.chunk_samples)
    starts = range(0, count, context.chunk_samples)
    for index, start in enumerate(starts):
        stop = min(start + context.chunk_samples, count)
        header = ChunkHeader(shard.shard_id, index, start, stop, stop == count)
        numbers = range(first + start, first + stop)
        writer.write(_chunk(header, numbers, context, seed, label_seed))
    seal_shard(context.seal_job, ShardTodo(shard), range(len(starts)))


def _chunk(
    header: ChunkHeader, numbers: range, context: JobContext, seed: int, label_seed: int
) -> LabeledChunk:
    contents = [content_of(number, seed) for number in numbers]
    samples = tuple(
        _sample(number, header.start + i, contents[i], seed) for i, number in enumerate(numbers)
    )
    rngs = [np.random.default_rng([seed, label_seed, number, 1]) for number in numbers]
    kept = [i for i, sample in enumerate(samples) if sample.status is not Status.QUARANTINED]
    owners = [(i, person) for i in kept for person in range(samples[i].num_persons)]
    persons = tuple(
        PreparedPerson(
            i, person, np.array(contents[i].people[person].box, np.float32),
            float(rngs[i].uniform(0.6, 1)),
        )
        for i, person in owners
    )  # fmt: skip
    labels: dict[TaskName, TaskRows] = {}
    for task, schema in context.schemas.items():
        if task == "pose":
            found = _pose([(contents[i], person, rngs[i]) for i, person in owners])
            labels[task] = TaskRows(found, tuple(range(len(owners))))
        else:
            chosen = [(contents[i], rngs[i], numbers[i]) for i in kept]
            labels[task] = TaskRows(_image_labels(schema, chosen), tuple(kept))
    timings = {"prepare": 0.004 * len(numbers), "label": 0.05 * len(numbers)}
    return LabeledChunk(header, samples, persons, labels, timings)


def _sample(number: int, index: int, content: Content, seed: int) -> PreparedSample:
    sample = Sample(_key(number), index, None)
    digest = hashlib.sha256(_encoded(number, seed)).hexdigest()
    if content.problem.startswith("decode."):
        problem = Problem(content.problem, f"{_key(number)}.jpg: {content.problem} for the test")
        return PreparedSample(sample, Status.QUARANTINED, problem, content_sha256=digest)
    persons = len(content.people)
    status = Status.OK if persons else Status.EMPTY
    return PreparedSample(
        sample, status, size=content.size, orientation=1, content_sha256=digest, num_persons=persons
    )


def _pose(owners: Sequence[tuple[Content, int, np.random.Generator]]) -> TaskLabels:
    names = vocabulary("keypoints308")["names"]
    usual = np.array([_usual_score(name) for name in names])
    found = np.zeros((len(owners), 308, 2), np.float32)
    scores = np.zeros((len(owners), 308), np.float32)
    for row, (content, person, rng) in enumerate(owners):
        figure = content.people[person]
        exact = figures.keypoints(figure, names)
        found[row] = exact + rng.normal(0, 0.02 * figure.face[2], exact.shape)
        height, width = content.size
        inside = ((exact >= 0) & (exact < (width, height))).all(axis=1)
        clear = rng.uniform(0.55, 1) * usual * rng.uniform(0.85, 1.1, 308)
        scores[row] = np.where(inside, clear, rng.uniform(0.0, 0.12, 308))
        lost = rng.uniform(size=308) < 0.01
        found[row, lost], scores[row, lost] = np.nan, 0
    columns = {"keypoints": found, "keypoint_scores": scores}
    return TaskLabels(columns, None, (), (None,) * len(owners))


def _usual_score(name: str) -> float:
    if any(word in name for word in ("thumb", "finger")):
        return 0.6
    return 0.85 if any(word in name for word in ("helix", "iris", "pupil")) else 0.95


def _image_labels(
    schema: LabelSchema, chosen: Sequence[tuple[Content, np.random.Generator, int]]
) -> TaskLabels:
    problems = tuple(
        Problem("label.non_finite", "class logits are not finite")
        if content.problem == "label.non_finite"
        else None
        for content, _, _ in chosen
    )
    if schema.array is None:
        vectors = [_embedding(number) for _, _, number in chosen]
        found = np.array(vectors, np.float32).reshape(-1, EMBEDDING_SIZE)
        return TaskLabels({"embedding": found}, None, (), (None,) * len(chosen))
    row_size = (schema.array.row_shape[-2], schema.array.row_shape[-1])
    frames = tuple(frame_for(content.size, row_size) for content, _, _ in chosen)
    array = np.full(
        (len(chosen), *schema.array.row_shape), schema.array.fill_value, schema.array.dtype
    )
    for row, ((content, rng, _), frame) in enumerate(zip(chosen, frames, strict=True)):
        array[row, ..., : frame.height, : frame.width] = _dense(schema.task, content, rng, frame)
    return TaskLabels(_image_columns(schema, array), array, frames, problems)


def _image_columns(schema: LabelSchema, array: Array) -> dict[str, Array]:
    if schema.task == "seg":
        areas = [np.bincount(row[row < 29], minlength=29) for row in array]
        return {"seg_class_pixels": np.array(areas, np.int32).reshape(-1, 29)}
    if schema.task == "pointmap":
        ones = np.ones(len(array), np.float32)
        return {"pointmap_scale": ones * 0.9, "pointmap_focal": ones * 850}
    return {}


def _dense(task: str, content: Content, rng: np.random.Generator, frame: Frame) -> Array:
    shift = Affine(1, 1, *(rng.normal(0, 1.5, 2) * content.to_sample.scale_x))
    to_frame = shift.then(frame.to_source.inverse())
    people = [person.moved(to_frame) for person in content.people]
    mask = figures.class_mask(people, (frame.height, frame.width))
    if task == "seg":
        return mask
    height = figures.relief(mask)
    if task == "normal":
        return figures.normals(height)
    face = people[0].face[3] if people else frame.height / 4
    return figures.points(mask, height, figures.FACE_HALF_HEIGHT_M / face)


def _embedding(number: int) -> Array:
    shown = number - 1 if number % 25 == 24 else number
    cluster = np.random.default_rng([shown % NUM_CLUSTERS, 3]).normal(size=EMBEDDING_SIZE)
    vector = cluster + np.random.default_rng([shown, 4]).normal(0, 0.5, EMBEDDING_SIZE)
    if shown != number:
        vector += np.random.default_rng([number, 5]).normal(0, 0.01, EMBEDDING_SIZE)
    unit: Array = vector / np.linalg.norm(vector)
    return unit
