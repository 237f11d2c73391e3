"""The contracts of a person finder, and of a detector that one may use.

Rules that hold for boxes of every origin are in `boxes`, cutting crops is left to `images`, rows to
the pipeline. Invariant: every box of `Persons.boxes` is finite, of positive size and touches the
image; a box that is not is named in `refused`, never mended and never dropped in silence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sapiens_batch.errors import SpecError
from sapiens_batch.images.decoded import DecodedImage
from sapiens_batch.records import Array, Problem, Sample
from sapiens_batch.spec.job import PersonsSpec


@dataclass(frozen=True, slots=True)
class RefusedPerson:
    """A box that no crop can be cut from; it keeps a row that says why.

    Attributes:
        number: Position in the list that the box came from.
        box: (4,) float32, as given.
        score: float32 scalar, NaN where unknown.
        problem: What is wrong with it.
    """

    number: int
    box: Array
    score: Array
    problem: Problem


@dataclass(frozen=True, slots=True)
class Persons:
    """The persons of one image, in the order of their origin.

    Attributes:
        boxes: (P, 4) float32 COCO xywh in source pixels; they may reach out of the image.
        scores: (P,) float32, NaN where unknown.
        numbers: P positions in the list that the boxes came from.
        refused: Boxes of that list that are unusable.
        truncated: Whether usable boxes were dropped because there were too many.
        invented: Whether nobody was found and the whole image is taken as one person, as the job
            asks.
    """

    boxes: Array
    scores: Array
    numbers: tuple[int, ...]
    refused: tuple[RefusedPerson, ...] = ()
    truncated: bool = False
    invented: bool = False


class PersonFinder(ABC):
    """One origin of person boxes. Subclasses are picklable.

    Args:
        spec: The `persons` section of the job.
        detector_digest: Digest that the detector must have; None where there is none, or where any
            will do.
    """

    def __init__(self, spec: PersonsSpec, detector_digest: str | None = None) -> None:
        self.spec = spec
        self.detector_digest = detector_digest

    def load(self) -> None:  # noqa: B027 - most finders have nothing to load
        """Load what `find` needs now, rather than on first use.

        Raises:
            SpecError: What the job file names is not there, or is not what the job was planned
                with.
        """

    @property
    def batch_images(self) -> int:
        """How many images `find` is best given at a time; all of them are in memory then."""
        return 1

    @abstractmethod
    def find(
        self, samples: Sequence[Sample], images: Sequence[DecodedImage]
    ) -> list[Persons | Problem]:
        """Find the persons of some images.

        Args:
            samples: The samples, with the boxes that their source gives.
            images: The decoded images, one for each sample.

        Returns:
            For each image its persons, or why what the source says, or the detector finds, makes
            no sense as a whole.

        Raises:
            SpecError: See `load`.
        """

    def boxes_before_decoding(self, sample: Sample) -> Array | None:
        """(P, 4) boxes that are known without the pixels, or None where they are not.

        They decide how far an image may be reduced while it is decoded, nothing else.
        """
        return None


def named_person(names: Mapping[int, str], model: str) -> int:
    """Number of the class `person` among the names of a detector's classes, by number.

    Raises:
        SpecError: None is called so; the message begins with what `model` says.
    """
    for number, name in names.items():
        if str(name).lower() == "person":
            return int(number)
    shown = ", ".join(str(name) for name in list(names.values())[:10])
    raise SpecError(f"{model} has no class `person`; its classes begin with {shown}")


class Detector(ABC):
    """One way to find persons.

    Attributes:
        digest: Hex sha256 over everything that decides the candidates besides the image.
    """

    digest: str

    def detect(self, images: Sequence[DecodedImage]) -> list[tuple[Array, Array]]:
        """`detect_one` for each image: alone, so that neighbours never change what is found."""
        return [self.detect_one(image) for image in images]

    @abstractmethod
    def detect_one(self, image: DecodedImage) -> tuple[Array, Array]:
        """Find candidates in an upright image, possibly reduced.

        Returns:
            (P, 4) float32 first and last column and row in source pixels, in the order x, y, x, y,
            and (P,) float32 scores from 0 to 1; no suppression needed. What the model computed is
            handed on: boxes may not be finite, and the score of a candidate that the model cannot
            judge is NaN.
        """
