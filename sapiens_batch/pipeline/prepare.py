"""From encoded samples to model inputs: decode, find persons, make views.

Runs in CPU workers. A sample that cannot be decoded becomes a quarantined row and costs the others
nothing; a chunk always leaves with as many samples as it came with (I1).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sapiens_batch.errors import SampleError
from sapiens_batch.images.decode import decode
from sapiens_batch.images.decoded import DecodedImage
from sapiens_batch.images.views import make_view
from sapiens_batch.persons.base import PersonFinder, Persons
from sapiens_batch.pipeline.cells import ChunkHeader, PreparedChunk, PreparedPerson, PreparedSample
from sapiens_batch.records import (
    Array,
    Chunk,
    Problem,
    Sample,
    Status,
    View,
    ViewBatch,
    ViewKind,
    ViewSpec,
)


@dataclass(slots=True)
class _Views:
    views: list[View] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def add(self, view: View, size: tuple[int, int], row: int) -> None:
        self.views.append(view)
        self.sizes.append(size)
        self.rows.append(row)

    def batch(self, spec: ViewSpec) -> ViewBatch:
        empty = np.empty((0, spec.height, spec.width, 3), np.uint8)
        canvases = np.stack([view.canvas for view in self.views]) if self.views else empty
        return ViewBatch(
            spec,
            canvases,
            tuple(view.to_source for view in self.views),
            tuple(view.content for view in self.views),
            tuple(self.sizes),
            tuple(self.rows),
        )


class ChunkPreparer:
    """Prepares chunks for one set of view specs.

    Args:
        finder: Finds persons, or None where the job does not ask for persons.
        view_specs: The views to make of every sample (or person, for crops).
    """

    def __init__(self, finder: PersonFinder | None, view_specs: Sequence[ViewSpec]) -> None:
        self._finder = finder
        self._image_specs = [spec for spec in view_specs if spec.kind is not ViewKind.CROP]
        self._crop_specs = [spec for spec in view_specs if spec.kind is ViewKind.CROP]

    def prepare(self, chunk: Chunk) -> PreparedChunk:
        """Decode a chunk and make its views; failures of single samples become rows."""
        started = time.perf_counter()
        samples: list[PreparedSample] = []
        persons: list[PreparedPerson] = []
        views = {spec: _Views() for spec in (*self._image_specs, *self._crop_specs)}
        for position, sample in enumerate(chunk.samples):
            samples.append(self._prepare_sample(sample, position, persons, views))
        return PreparedChunk(
            header=ChunkHeader(
                chunk.shard_id, chunk.index, chunk.start, chunk.stop, chunk.last, chunk.problems
            ),
            samples=tuple(samples),
            persons=tuple(persons),
            views={spec: made.batch(spec) for spec, made in views.items()},
            timings_s={"prepare": time.perf_counter() - started},
        )

    def _prepare_sample(
        self,
        sample: Sample,
        position: int,
        persons: list[PreparedPerson],
        views: dict[ViewSpec, _Views],
    ) -> PreparedSample:
        encoded = sample.encoded
        row = PreparedSample(replace(sample, encoded=None), Status.QUARANTINED, sample.problem)
        if encoded is None:
            missing = Problem("source.missing_image", f"{sample.key}: the source has no bytes")
            return replace(row, problem=sample.problem or missing)
        row = replace(row, content_sha256=hashlib.sha256(encoded).hexdigest())
        if sample.problem is not None:
            return row
        try:
            image = decode(encoded)
            found = self._find(sample, image)
            image_views = [make_view(image.pixels, spec) for spec in self._image_specs]
            crops = [
                [make_view(image.pixels, spec, box) for spec in self._crop_specs]
                for box in found.boxes
            ]
        except SampleError as error:
            return replace(row, problem=Problem(error.reason, error.message))
        size = (image.pixels.shape[0], image.pixels.shape[1])
        for spec, view in zip(self._image_specs, image_views, strict=True):
            views[spec].add(view, size, position)
        for number, (box, score, cut) in enumerate(
            zip(found.boxes, found.scores, crops, strict=True)
        ):
            for spec, view in zip(self._crop_specs, cut, strict=True):
                views[spec].add(view, size, len(persons))
            persons.append(PreparedPerson(position, number, box, _known(score)))
        is_empty = self._finder is not None and len(found.boxes) == 0
        return replace(
            row,
            status=Status.EMPTY if is_empty else Status.OK,
            size=size,
            orientation=image.orientation,
            num_persons=len(found.boxes),
        )

    def _find(self, sample: Sample, image: DecodedImage) -> Persons:
        if self._finder is None:
            return Persons(np.empty((0, 4), np.float32), np.empty(0, np.float32))
        return self._finder.find(sample, image.pixels)


def _known(score: Array) -> float | None:
    return None if np.isnan(score) else float(score)
