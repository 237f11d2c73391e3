"""From encoded samples to model inputs: decode, find persons, make views.

Runs in CPU workers. A sample that cannot be decoded becomes a quarantined row and costs the others
nothing; a chunk always leaves with as many samples as it came with (I1). How many decoded images
are in memory at a time is the person finder's batch, however large the chunk.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import replace

import cv2
import numpy as np

from sapiens_batch.errors import SampleError
from sapiens_batch.images.decoded import DecodedImage, DecodeOptions
from sapiens_batch.images.guard import guarded_decoder
from sapiens_batch.images.heap import keep_freed_memory
from sapiens_batch.images.reduction import NEVER, crop_density
from sapiens_batch.persons.base import PersonFinder, Persons
from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.records import Array, Chunk, Level, Problem, Sample, Status, ViewSpec
from sapiens_batch.spec.job import DecodeSpec
from sapiens_batch.stages.flow import PreparedChunk, PreparedPerson, PreparedSample
from sapiens_batch.stages.viewing import ViewCollector

_NOBODY = Persons(np.empty((0, 4), np.float32), np.empty(0, np.float32), ())
# What `person.reason` says about a whole image that stands in for persons.
INVENTED = "person.invented"


class ChunkPreparer:
    """Prepares chunks for one set of view specs. Picklable.

    Args:
        finder: Finds persons, or None where the job does not ask for persons.
        view_specs: The views to make of every sample, or of every person.
        decode: The `decode` section of the job.
    """

    def __init__(
        self,
        finder: PersonFinder | None,
        view_specs: Sequence[ViewSpec],
        decode: DecodeSpec | None = None,
    ) -> None:
        section = decode or DecodeSpec()
        self._finder = finder
        self._view_specs = tuple(view_specs)
        self._person_specs = [spec for spec in view_specs if spec.owner is Level.PERSON]
        self._timeout_s = section.timeout_s
        self._options = DecodeOptions(
            max_pixels=section.max_pixels,
            background=section.background,
            scaled=section.scaled,
            image_views=tuple(spec for spec in view_specs if spec.owner is Level.IMAGE),
        )

    def load(self) -> None:
        """Load the detector now, where there is one; see `PersonFinder.load`."""
        if self._finder is not None:
            self._finder.load()

    def prepare(self, chunk: Chunk) -> PreparedChunk:
        """Decode a chunk and make its views; failures of single samples become rows."""
        started = time.perf_counter()
        _tune_process()
        samples: list[PreparedSample] = []
        persons: list[PreparedPerson] = []
        views = ViewCollector(self._view_specs)
        step = 1 if self._finder is None else self._finder.batch_images
        for start in range(0, len(chunk.samples), step):
            self._prepare_group(chunk.samples[start : start + step], samples, persons, views)
        return PreparedChunk(
            header=ChunkHeader(
                chunk.shard_id, chunk.index, chunk.start, chunk.stop, chunk.last, chunk.problems
            ),
            samples=tuple(samples),
            persons=tuple(persons),
            views=views.batches(),
            timings_s={"prepare": time.perf_counter() - started},
        )

    def _prepare_group(
        self,
        group: Sequence[Sample],
        samples: list[PreparedSample],
        persons: list[PreparedPerson],
        views: ViewCollector,
    ) -> None:
        """Decode some samples and append their rows and views."""
        decoded = [self._decode(sample) for sample in group]
        sound = [(row.sample, image) for row, image in decoded if image is not None]
        found = iter(self._find([sample for sample, _ in sound], [image for _, image in sound]))
        for row, image in decoded:
            if image is not None:
                of_image = next(found)
                if isinstance(of_image, Problem):
                    row = replace(row, problem=of_image)
                else:
                    row = self._settle(row, of_image)
                    self._view(image, of_image, len(samples), persons, views)
            samples.append(row)

    def _decode(self, sample: Sample) -> tuple[PreparedSample, DecodedImage | None]:
        """The row of a sample, quarantined until it is settled, and its image if there is one."""
        encoded = sample.encoded
        row = PreparedSample(replace(sample, encoded=None), Status.QUARANTINED, sample.problem)
        if encoded is None:
            missing = Problem("source.missing_image", f"{sample.key}: the source has no bytes")
            return replace(row, problem=sample.problem or missing), None
        row = replace(row, content_sha256=hashlib.sha256(encoded).hexdigest())
        if sample.problem is not None:
            return row, None
        decoder = guarded_decoder(self._options, self._timeout_s)
        try:
            image = decoder.decode(encoded, crop_density=self._crop_density(sample))
        except SampleError as error:
            return replace(row, problem=Problem(error.reason, error.message)), None
        row = replace(
            row,
            size=image.size,
            orientation=image.orientation,
            decoder=image.decoder,
            animated=image.animated,
            colour_profile=image.colour_profile,
        )
        return row, image

    def _crop_density(self, sample: Sample) -> float:
        if self._finder is None or not self._person_specs:
            return 0.0
        boxes = self._finder.boxes_before_decoding(sample)
        return NEVER if boxes is None else crop_density(boxes, self._person_specs)

    def _find(
        self, samples: Sequence[Sample], images: Sequence[DecodedImage]
    ) -> Sequence[Persons | Problem]:
        if self._finder is None or not images:
            return [_NOBODY] * len(images)
        return self._finder.find(samples, images)

    def _settle(self, row: PreparedSample, found: Persons) -> PreparedSample:
        is_empty = self._finder is not None and len(found.boxes) == 0
        return replace(
            row,
            status=Status.EMPTY if is_empty else Status.OK,
            num_persons=len(found.boxes),
            persons_truncated=None if self._finder is None else found.truncated,
        )

    def _view(
        self,
        image: DecodedImage,
        found: Persons,
        position: int,
        persons: list[PreparedPerson],
        views: ViewCollector,
    ) -> None:
        """Append the persons of a sample, by their numbers, and all views of it."""
        rows = _person_rows(found, position)
        owners = [len(persons) + i for i, row in enumerate(rows) if row.status == "ok"]
        persons.extend(rows)
        views.add(image, position, found.boxes, owners)


def _person_rows(found: Persons, position: int) -> list[PreparedPerson]:
    reason = INVENTED if found.invented else None
    kept = [
        PreparedPerson(position, number, box, _known(score), "ok", reason)
        for number, box, score in zip(found.numbers, found.boxes, found.scores, strict=True)
    ]
    refused = [
        PreparedPerson(
            position, one.number, one.box, _known(one.score), "refused", one.problem.reason
        )
        for one in found.refused
    ]
    return sorted([*kept, *refused], key=lambda row: row.person)


def _known(score: Array) -> float | None:
    return None if np.isnan(score) else float(score)


def _tune_process() -> None:
    """One image at a time on one core: more threads would take the cores of other workers."""
    keep_freed_memory()
    cv2.setNumThreads(1)
