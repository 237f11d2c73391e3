"""From encoded samples to model inputs: decode, find persons, make views.

Runs in CPU workers. A sample that cannot be decoded becomes a quarantined row and costs the others
nothing; a chunk always leaves with as many samples as it came with (I1). How many decoded images
are in memory at a time is the person finder's batch, or what the decoder takes for one group,
however large the chunk.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import cv2
import numpy as np

from sapiens_batch.images.collector import ViewCollector
from sapiens_batch.images.decoded import DecodedImage, DecodeOptions
from sapiens_batch.images.guard import guarded_decoder
from sapiens_batch.images.heap import keep_freed_memory
from sapiens_batch.images.reduction import NEVER, crop_density
from sapiens_batch.persons.base import PersonFinder, Persons
from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.records import Array, Chunk, Level, Problem, Sample, Status, ViewSpec
from sapiens_batch.spec.job import DecodeSpec
from sapiens_batch.stages.flow import PreparedChunk, PreparedPerson, PreparedSample

_NOBODY = Persons(np.empty((0, 4), np.float32), np.empty(0, np.float32), ())
# What `person.reason` says about a whole image that stands in for persons.
INVENTED = "person.invented"

# Position in the chunk, the sample, and what became of its image.
_Decoded = tuple[int, Sample, DecodedImage | Problem]


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
        rows: dict[int, PreparedSample] = {}
        persons: list[PreparedPerson] = []
        views = ViewCollector(self._view_specs, len(chunk.samples))
        encoded: dict[int, bytes] = {}
        for position, sample in enumerate(chunk.samples):
            if sample.encoded is None or sample.problem is not None:
                rows[position] = quarantined_row(sample, sample.problem or _missing(sample))
            else:
                encoded[position] = sample.encoded
        for group in self._decode(chunk.samples, encoded):
            self._settle(group, rows, persons, views)
        return PreparedChunk(
            header=ChunkHeader(
                chunk.shard_id, chunk.index, chunk.start, chunk.stop, chunk.last, chunk.problems
            ),
            samples=tuple(rows[position] for position in range(len(chunk.samples))),
            persons=tuple(persons),
            views=views.batches(),
            timings_s={"prepare": time.perf_counter() - started},
        )

    def _decode(
        self, samples: Sequence[Sample], encoded: Mapping[int, bytes]
    ) -> Iterator[list[_Decoded]]:
        """Groups of images as large as they are to be in memory at a time, in their order."""
        decoder = guarded_decoder(self._options, self._timeout_s)
        batch = 1 if self._finder is None else self._finder.batch_images
        groups = decoder.decode_many(
            list(encoded.values()),
            [self._crop_density(samples[position]) for position in encoded],
            together=batch if batch > 1 else None,
        )
        positions = iter(encoded)
        for images in groups:
            yield [(at := next(positions), samples[at], image) for image in images]

    def _settle(
        self,
        group: Sequence[_Decoded],
        rows: dict[int, PreparedSample],
        persons: list[PreparedPerson],
        views: ViewCollector,
    ) -> None:
        """Make the rows, persons and views of some samples."""
        sound = [(sample, image) for _, sample, image in group if isinstance(image, DecodedImage)]
        found = iter(self._find([sample for sample, _ in sound], [image for _, image in sound]))
        for position, sample, image in group:
            if isinstance(image, Problem):
                rows[position] = quarantined_row(sample, image)
                continue
            of_image = next(found)
            rows[position] = self._row(sample, image, of_image)
            if isinstance(of_image, Persons):
                numbered = _person_rows(of_image, position)
                owners = [len(persons) + i for i, row in enumerate(numbered) if row.status == "ok"]
                persons.extend(numbered)
                views.add(image, position, of_image.boxes, owners)

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

    def _row(self, sample: Sample, image: DecodedImage, found: Persons | Problem) -> PreparedSample:
        status, problem, num_persons, truncated = Status.OK, None, 0, None
        if isinstance(found, Problem):
            status, problem = Status.QUARANTINED, found
        elif self._finder is not None:
            num_persons, truncated = len(found.boxes), found.truncated
            status = Status.OK if num_persons else Status.EMPTY
        return PreparedSample(
            replace(sample, encoded=None),
            status,
            problem,
            size=image.size,
            orientation=image.orientation,
            content_sha256=_digest(sample),
            num_persons=num_persons,
            persons_truncated=truncated,
            decoder=image.decoder,
            animated=image.animated,
            colour_profile=image.colour_profile,
        )


def quarantined_row(sample: Sample, problem: Problem) -> PreparedSample:
    """The row of a sample without an image."""
    bare = replace(sample, encoded=None)
    return PreparedSample(bare, Status.QUARANTINED, problem, content_sha256=_digest(sample))


def _missing(sample: Sample) -> Problem:
    return Problem("source.missing_image", f"{sample.key}: the source has no bytes")


def _digest(sample: Sample) -> str | None:
    return None if sample.encoded is None else hashlib.sha256(sample.encoded).hexdigest()


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
