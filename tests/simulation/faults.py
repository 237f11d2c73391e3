"""What can go wrong in a simulated history, and which of it does: drawn from the seed beforehand.

A strike hits one actor at one of its store calls, damage hits one stored object between two calls.
Both are plain values with a number, so that a history can be run again without some of them. What a
fault does is left to `world` and `store`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from sapiens_batch.protocol import keys


class Fault(StrEnum):
    """What can happen to one store call.

    Attributes:
        REFUSED: The store answers with an error and does nothing.
        LOST_ANSWER: The call takes effect, its answer is an error.
        REPEATED: A create takes effect, its answer is lost, the client repeats it and decides by
            reading back, as `Store.create` says.
        DIES_BEFORE: The caller dies before the call.
        DIES_AFTER: The caller dies after the call took effect.
        PAUSED_BEFORE: The caller stops and is resumed much later, before the call.
        PAUSED_AFTER: The same, after the call took effect, before its answer is looked at.
        LANDS_LATE: The caller dies, its request takes effect much later.
    """

    REFUSED = "refused"
    LOST_ANSWER = "lost answer"
    REPEATED = "repeated"
    DIES_BEFORE = "dies before"
    DIES_AFTER = "dies after"
    PAUSED_BEFORE = "paused before"
    PAUSED_AFTER = "paused after"
    LANDS_LATE = "lands late"


class Damage(StrEnum):
    """What can happen to a stored object."""

    FLIPPED = "bit flipped"
    TRUNCATED = "truncated"
    LOST = "lost"


class Until(StrEnum):
    """When a paused actor is resumed."""

    SOON = "some calls later"
    IDLE = "when the others are done"
    END = "when the job is finished"


ANY: Final = ""


@dataclass(slots=True)
class Strike:
    """One fault that waits for its call.

    Attributes:
        name: Its name in the history, after its actor.
        fault: What happens.
        op: The store call that it waits for; any where empty.
        folder: Prefix of the keys that it waits for.
        skip: How many such calls of its actor go well before.
        until: When a paused actor is resumed, or a late request lands.
        delay: How many calls of all actors later, where that is `SOON`.
    """

    name: str
    fault: Fault
    op: str
    folder: str
    skip: int
    until: Until
    delay: int

    def hits(self, op: str, key: str) -> bool:
        """Whether this is the call; counts the calls before it."""
        if (self.op and self.op != op) or not key.startswith(self.folder):
            return False
        self.skip -= 1
        return self.skip < 0

    def __str__(self) -> str:
        where = f"{self.op or 'call'} {self.folder}*, {self.skip} before"
        return f"#{self.name} {self.fault} at {where}"


@dataclass(slots=True)
class DamageStrike:
    """Damage that waits for its moment.

    Attributes:
        name: Its name in the history.
        damage: What happens.
        folder: Prefix of the object that is hit.
        skip: How many creates in that folder go unharmed; the next one is hit.
        delay: Calls of all actors between the create and the damage.
        place: Where in the object, from 0 to 1.
    """

    name: str
    damage: Damage
    folder: str
    skip: int
    delay: int
    place: float

    def __str__(self) -> str:
        where = f"{self.folder}*, {self.skip} before, {self.delay} calls later"
        return f"#{self.name} {self.damage}: {where}"


Kind = TypeVar("Kind", Strike, DamageStrike)

TARGETS: Final = (
    ("create", keys.COMMITS),
    ("create", keys.RECEIPTS),
    ("create", keys.TABLES),
    ("create", keys.ARRAYS),
    ("create", keys.PLAN),
    ("create", keys.RELABEL),
    ("create", keys.JOB),
    ("copy", keys.ARRAYS),
    ("read", keys.RECEIPTS),
    ("read", keys.COMMITS),
    ("read", keys.PLAN),
    ("list", ANY),
    ("delete", ANY),
    ("size", ANY),
    ("exists", ANY),
)
"""Calls at which a fault has consequences; half of all strikes wait for one of these."""

DAMAGED_FOLDERS: Final = (
    keys.ARRAYS,
    keys.RECEIPTS,
    keys.TABLES,
    keys.COMMITS,
    keys.ARRAYS,
    keys.RECEIPTS,
    keys.TABLES,
    keys.RELABEL,
    keys.PLAN,
)

_CALLS: Final = {"worker": 5, "driver": 60}
"""Store calls of an actor among which a fault that waits for any call is drawn."""


class Faults:
    """Draws the faults of one history.

    Each actor's come from its name, so that leaving out one fault moves no other.

    Args:
        seed: Of the history.
        dropped: Names of faults that are left out.
    """

    def __init__(self, seed: int, dropped: Iterable[str] = ()) -> None:
        self._seed = seed
        self._dropped = frozenset(dropped)
        rng = random.Random(f"{seed} faults")
        kinds = list(Fault)
        rng.shuffle(kinds)
        self._kinds = tuple(kinds[: rng.choice((0, 1, 2, 3, 3, 8))])
        self._rate = rng.choice((0.1, 0.3, 0.6))
        self.drawn: list[Strike | DamageStrike] = []

    def strikes(self, actor: str, kind: str) -> list[Strike]:
        """The faults of one actor of a kind, `worker` or another."""
        if not self._kinds:
            return []
        rng = random.Random(f"{self._seed} {actor}")
        found: list[Strike] = []
        while rng.random() < self._rate:
            targeted = rng.random() < 0.5
            op, folder = rng.choice(TARGETS) if targeted else (ANY, ANY)
            calls = 3 if targeted else _CALLS.get(kind, _CALLS["driver"])
            found.append(
                Strike(
                    name=f"{actor}.{len(found)}",
                    fault=rng.choice(self._kinds),
                    op=op,
                    folder=folder,
                    skip=rng.randrange(calls),
                    until=rng.choice(tuple(Until)),
                    delay=rng.randrange(1, 200),
                )
            )
        return self._keep(found)

    def damages(self) -> list[DamageStrike]:
        """The damage of the history."""
        rng = random.Random(f"{self._seed} damage")
        return self._keep(
            [
                DamageStrike(
                    name=f"damage.{number}",
                    damage=rng.choice(tuple(Damage)),
                    folder=rng.choice(DAMAGED_FOLDERS),
                    skip=rng.choice((0, 1, rng.randrange(6))),
                    delay=rng.choice((1, rng.randrange(1, 30), rng.randrange(1, 300))),
                    place=rng.random(),
                )
                for number in range(rng.choice((0, 0, 0, 1, 1, 2, 3)))
            ]
        )

    def cease(self) -> None:
        """From now on actors start without faults."""
        self._kinds = ()

    def _keep(self, found: list[Kind]) -> list[Kind]:
        kept = [one for one in found if one.name not in self._dropped]
        self.drawn += kept
        return kept
