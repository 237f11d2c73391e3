"""What is true in a simulated history: its corpus, and every label that an attempt ever gave.

A label is a random tag that belongs to one sample and one attempt at it, so that rows can be traced
to what they came from. Attempts differ: persons are not found alike, and some samples fail now and
then. How labels are stored is left to `tables`, who asks for them to `actors`.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import Final, Literal

from sapiens_batch.records import ArrayField, LabelSchema, Level, Shard, Status

CHUNK_SAMPLES: Final = 2
MAX_PERSONS: Final = 2

Nature = Literal["sound", "flaky", "bad"]
"""A sample that is always labeled, that fails now and then, that can never be labeled."""

SEG: Final = LabelSchema("seg", Level.IMAGE, (), ArrayField((1,), "uint8", 255, ("x",), "zstd"), {})
NORMAL: Final = LabelSchema(
    "normal",
    Level.PERSON,
    (),
    ArrayField((1,), "uint8", 255, ("x",), "zstd", rows_per_sample=MAX_PERSONS),
    {},
)


@dataclass(frozen=True, slots=True)
class Label:
    """What one attempt found in one sample.

    Attributes:
        tag: Unique.
        shard_id: The sample's shard.
        index: Its index there.
        status: What became of it.
        persons: Persons that were found.
        born: Calls of all actors before it.
    """

    tag: int
    shard_id: str
    index: int
    status: Status
    persons: int
    born: int


@dataclass(frozen=True, slots=True)
class Corpus:
    """The input.

    Attributes:
        shards: As they are listed.
        natures: Of every sample of a shard, by shard id.
        persons_vary: Whether attempts differ in the persons that they find.
        early: How many shards are listed from the start.
        late_calls: Calls of all actors after which all are listed.
    """

    shards: tuple[Shard, ...]
    natures: dict[str, tuple[Nature, ...]]
    persons_vary: bool
    early: int
    late_calls: int

    def listed(self, calls: int) -> tuple[Shard, ...]:
        """The shards that a source lists after so many calls of all actors."""
        return self.shards if calls >= self.late_calls else self.shards[: self.early]

    @classmethod
    def draw(cls, rng: random.Random) -> Corpus:
        """A small corpus: the faults of a large one need two shards and three chunks."""
        shards = []
        natures: dict[str, tuple[Nature, ...]] = {}
        quiet = rng.random() < 0.5
        for number in range(rng.choice((1, 1, 1, 2, 2, 3))):
            key = f"{number:03d}.tar"
            shard_id = hashlib.sha256(key.encode()).hexdigest()[:32]
            shards.append(Shard(shard_id, key, f"/in/{key}", "v1", 100))
            natures[shard_id] = tuple(
                "sound" if quiet else rng.choice(("sound", "sound", "sound", "flaky", "bad"))
                for _ in range(rng.choice((0, 1, 2, 3, 3, 4, 5)))
            )
        early = len(shards) if rng.random() < 0.8 else rng.randrange(len(shards) + 1)
        return cls(tuple(shards), natures, rng.random() < 0.5, early, rng.randrange(100))


class Truth:
    """Every label of a history.

    Args:
        corpus: The input.
        rng: Draws labels.
    """

    def __init__(self, corpus: Corpus, rng: random.Random) -> None:
        self.corpus = corpus
        self._rng = rng
        self._labels: dict[int, Label] = {}

    def label(self, shard_id: str, index: int, born: int) -> Label:
        """A new attempt at a sample."""
        rng = self._rng
        nature = self.corpus.natures[shard_id][index]
        failed = nature == "bad" or (nature == "flaky" and rng.random() < 0.5)
        persons = rng.randrange(MAX_PERSONS + 1) if self.corpus.persons_vary else index % 3
        if failed:
            status, persons = Status.QUARANTINED, 0
        else:
            status = Status.OK if persons else Status.EMPTY
        label = Label(rng.getrandbits(48), shard_id, index, status, persons, born)
        self._labels[label.tag] = label
        return label

    def find(self, tag: object) -> Label | None:
        """The label with a tag; None where no attempt gave it."""
        return self._labels.get(tag) if isinstance(tag, int) else None
