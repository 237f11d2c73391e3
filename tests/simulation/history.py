"""One simulated history from its seed: draw a job and its faults, run it, finish it, check it.

First several processes work on the job while faults hit them. Then the store is put right and the
job is finished by undisturbed ones, as a person would: `verify --repair` and `run` until nothing is
left to do. What must hold on the way and at the end is in `invariants`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sapiens_batch.protocol import keys
from tests.simulation.actors import Process, Setting
from tests.simulation.faults import Faults, Until
from tests.simulation.invariants import GRACE_S, Watch
from tests.simulation.printing import printed
from tests.simulation.seams import ids_and_clocks
from tests.simulation.store import Objects
from tests.simulation.truth import Corpus, Truth
from tests.simulation.world import Stuck, World

ROUNDS: Final = 8
"""Repairs and runs after which a job must be finished; damage to each of few objects takes one."""


@dataclass(slots=True)
class Outcome:
    """How a history ended.

    Attributes:
        seed: Its seed.
        violations: What did not hold; empty where all is well.
        told: Damage that cannot be mended and was reported, which ends a history early.
        happened: Faults that happened, by kind.
        calls: Store calls of all actors.
        lines: The history for a person; empty unless it failed.
        faults: Names of the faults that were drawn.
    """

    seed: int
    violations: list[str] = field(default_factory=list)
    told: str = ""
    happened: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    lines: list[str] = field(default_factory=list)
    faults: tuple[str, ...] = ()


def simulate(seed: int, dropped: Iterable[str] = (), *, show: bool = False) -> Outcome:
    """Run one history.

    Args:
        seed: Decides everything.
        dropped: Names of faults to leave out.
        show: Whether to print it even if all is well.
    """
    return _History(seed, dropped).run(show)


class _History:
    """One history while it runs."""

    def __init__(self, seed: int, dropped: Iterable[str]) -> None:
        rng = random.Random(seed)
        self._seed = seed
        self._rng = rng
        self._corpus = Corpus.draw(rng)
        self._truth = Truth(self._corpus, random.Random(seed + 1))
        self._world = World(random.Random(seed + 2))
        self._faults = Faults(seed, dropped)
        self._watch = Watch(self._truth, self._world)
        damages = self._faults.damages()
        self._objects = Objects(random.Random(seed + 3), self._world, self._watch, damages)
        self._setting = Setting(
            self._world, self._objects, self._truth, self._watch, self._faults, rng
        )
        self._told = ""

    def run(self, show: bool) -> Outcome:
        world, watch = self._world, self._watch
        with ids_and_clocks(world, random.Random(self._seed + 4)):
            try:
                self._begin()
                world.run()
                self._objects.settle()
                world.calls = max(world.calls, self._corpus.late_calls)
                self._faults.cease()
                if self._rng.random() < 0.5:
                    self._finish()
                    if not world.has_sleepers:
                        return self._outcome(show)
                world.run(last=True)
                self._finish()
            except Stuck as error:
                watch.violations.append(f"liveness: {error}")
            finally:
                world.close()
        return self._outcome(show)

    def _outcome(self, show: bool) -> Outcome:
        world, watch = self._world, self._watch
        watch.violations += [f"crash: {one}" for one in world.crashes]
        outcome = Outcome(
            self._seed,
            watch.violations,
            self._told,
            world.happened,
            world.calls,
            faults=tuple(one.name for one in self._faults.drawn),
        )
        if outcome.violations or show:
            outcome.lines = self._lines()
        return outcome

    def _begin(self) -> None:
        """Start what disturbs each other."""
        rng, setting = self._rng, self._setting
        count = rng.choice((1, 1, 2, 2, 3))
        parted = count > 1 and rng.random() < 0.2
        for number in range(count):
            part = (number, count) if parted else (0, 1)
            self._start(number == 0, lambda part=part: setting.start("driver", part=part))
        for kind, chance in (("repair", 0.3), ("retry", 0.3), ("gc", 0.3), ("driver", 0.3)):
            if rng.random() < chance:
                self._start(False, lambda kind=kind: setting.start(kind))
        if rng.random() < 0.4:
            chances: dict[Process, float] = {"gc": 0.8, "driver": 0.8, "retry": 0.3}
            again = [kind for kind, chance in chances.items() if rng.random() < chance]
            self._world.later(Until.IDLE, 0, lambda: self._day_passes(again))

    def _start(self, now: bool, start: Callable[[], Any]) -> None:
        if now:
            start()
        elif self._rng.random() < 0.5:
            self._world.at(self._rng.randrange(150), start)
        else:
            self._world.later(Until.IDLE, 0, start)

    def _day_passes(self, again: Sequence[Process]) -> None:
        """All that was written is old now; who comes next meets it."""
        self._world.clock_s += 1.1 * GRACE_S
        self._world.note("(time)", "a day goes by", "")
        for kind in again:
            self._world.at(self._rng.randrange(40), lambda kind=kind: self._setting.start(kind))

    def _finish(self) -> None:
        """Repair and run undisturbed until there is nothing left to do."""
        if self._told:
            return
        for _ in range(ROUNDS):
            if self._world.crashes:
                return
            repair = self._undisturbed("repair")
            driver = self._undisturbed("driver")
            if self._told:
                return
            if repair == 0 and driver:
                self._watch.check_present(self._objects)
                if self._rng.random() < 0.3:
                    self._day_passes([])
                    self._undisturbed("gc")
                    self._watch.check_present(self._objects)
                return
        self._watch.violations.append(f"liveness: not finished after {ROUNDS} repairs and runs")

    def _undisturbed(self, kind: Process) -> Any:
        """What a process returns that nothing disturbs."""
        actor = self._setting.start(kind)
        self._world.run()
        if isinstance(actor.result, Exception):
            self._tell(actor.result)
            return None
        return actor.result

    def _tell(self, error: Exception) -> None:
        """An undisturbed process that gives up must name what was damaged, and cannot be mended."""
        for key in self._watch.damaged_keys:
            if key.startswith(keys.PLAN) and keys.PLAN in str(error):
                self._told = str(error)
                return

    def _lines(self) -> list[str]:
        shards = [shard.shard_id for shard in self._corpus.shards]
        drawn = [f"  {one}" for one in self._faults.drawn]
        return [
            f"seed {self._seed}: shards of {[len(one) for one in self._corpus.natures.values()]} "
            f"samples, lag up to {self._objects.max_lag_s} s, pages of {self._objects.page}",
            "faults drawn:",
            *drawn,
            *printed(self._world.events, shards),
            "violated:",
            *(f"  {one}" for one in self._watch.violations),
        ]
