"""Who acts when in a simulated history: greenlets, one at a time, switched at store calls.

The seed decides who goes on. Time is counted in calls, and runs a little with each of them. What a
call does is left to `store`, what actors do to `actors`; nothing here knows the protocol.
"""

from __future__ import annotations

import heapq
import random
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import greenlet

from sapiens_batch.errors import SapiensBatchError
from tests.simulation.faults import Fault, Strike, Until

MAX_CALLS: Final = 20_000
"""A history that takes more goes in circles."""

START_S: Final = 1_800_000_000.0


class Died(BaseException):
    """Raised in an actor at the call at which it dies, and at every later one."""


class Stuck(Exception):  # noqa: N818 - a finding of the simulator
    """A history does not come to an end."""


@dataclass(slots=True)
class Actor:
    """One process of a history.

    Attributes:
        name: For people, unique.
        kind: What it does: `driver`, `worker`, `repair`, `retry`, `gc`.
        strikes: Faults that wait for it.
        skew_s: How far its clock is ahead.
        parent: Who waits for it.
        orphans_die: Whether its children die with it.
        is_over: It ended, or died.
        is_paused: It sleeps and everybody takes it for dead.
        result: What it returned, or the error that ended it.
    """

    name: str
    kind: str
    strikes: list[Strike] = field(default_factory=list)
    skew_s: float = 0.0
    parent: Actor | None = None
    orphans_die: bool = True
    is_over: bool = False
    is_paused: bool = False
    is_waiting: bool = False
    asleep_since_s: float = 0.0
    result: Any = None
    children: list[Actor] = field(default_factory=list)
    run: greenlet.greenlet | None = None


@dataclass(slots=True)
class Event:
    """One line of a history: a store call and its result, or something that happened."""

    call: int
    clock_s: float
    actor: str
    what: str
    key: str
    result: Any
    fault: str


class World:
    """Time and actors of one history.

    Args:
        rng: Decides who goes on.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.calls = 0
        self.clock_s = START_S
        self.latency_s = rng.choice((0.01, 0.05, 0.2))
        self.current: Actor | None = None
        self.events: list[Event] = []
        self.happened: Counter[str] = Counter()
        self.crashes: list[str] = []
        self.longest_sleep_s = 0.0
        self._main = greenlet.getcurrent()
        self._actors: list[Actor] = []
        self._runnable: list[Actor] = []
        self._timed: list[tuple[int, int, Callable[[], None]]] = []
        self._late: dict[Until, list[Callable[[], None]]] = {Until.IDLE: [], Until.END: []}
        self._num_timed = 0
        # of all ways to interleave, three that find different faults: all alike, long runs of one
        # actor, and one that goes on until chance puts it last
        self._policy = rng.choice(("uniform", "runs", "ranks"))

    @property
    def has_sleepers(self) -> bool:
        """Whether somebody sleeps until the job is finished."""
        return bool(self._late[Until.END])

    def spawn(self, actor: Actor, act: Callable[[], Any]) -> None:
        """Start an actor."""
        actor.run = greenlet.greenlet(lambda: self._live(actor, act), self._main)
        self._actors.append(actor)
        self._insert(actor)
        if actor.parent is not None:
            actor.parent.children.append(actor)

    def at(self, calls: int, act: Callable[[], None]) -> None:
        """Do something so many calls of all actors later."""
        self._num_timed += 1
        heapq.heappush(self._timed, (self.calls + calls, self._num_timed, act))

    def later(self, until: Until, delay: int, act: Callable[[], None]) -> None:
        """Do something at a moment."""
        if until is Until.SOON:
            self.at(delay, act)
        else:
            self._late[until].append(act)

    def run(self, *, last: bool = False) -> None:
        """Let everybody act until nobody can.

        Args:
            last: Resume those too that sleep until the job is finished.

        Raises:
            Stuck: That takes too long.
        """
        waits = [Until.IDLE, Until.END] if last else [Until.IDLE]
        while True:
            if self._runnable:
                self._switch(self._pick(None))
            elif self._timed:
                self.calls = max(self.calls, self._timed[0][0])
                self._let_happen()
            else:
                woken = next((self._late[one] for one in waits if self._late[one]), None)
                if woken is None:
                    return
                woken.pop(self._rng.randrange(len(woken)))()

    def enter(self, actor: Actor, op: str, key: str) -> Strike | None:
        """Begin a store call: let others act before it; returns the fault that hits it.

        Raises:
            Died: The actor dies here.
        """
        self.step(actor)
        if actor.strikes:
            for strike in actor.strikes:
                if strike.hits(op, key):
                    actor.strikes.remove(strike)
                    return self._begin(actor, op, key, strike)
        return None

    def step(self, actor: Actor) -> None:
        """Let others act.

        Raises:
            Died: The actor is dead.
        """
        if actor.is_over:
            raise Died
        self.calls += 1
        self.clock_s += self.latency_s
        if self._timed and self._timed[0][0] <= self.calls:
            self._let_happen()
        chosen = self._pick(actor)
        if chosen is not actor:
            self._switch(chosen)
        if actor.is_over:
            raise Died

    def wait(self, actor: Actor) -> None:
        """Let others act until a child of an actor ended, died or was paused."""
        actor.is_waiting = True
        self._runnable.remove(actor)
        self._main.switch()
        if actor.is_over:
            raise Died

    def pause(self, actor: Actor, strike: Strike) -> None:
        """Put an actor to sleep as a fault asks for, in its own call.

        Raises:
            Died: It died while it slept.
        """
        actor.is_paused = True
        actor.asleep_since_s = self.clock_s
        self._runnable.remove(actor)
        self.later(strike.until, strike.delay, lambda: self._resume(actor))
        self._tell(actor)
        self._main.switch()
        if actor.is_over:
            raise Died

    def kill(self, actor: Actor) -> None:
        """End an actor, and its children if they die with it."""
        if actor.is_over:
            return
        actor.is_over = True
        if actor in self._runnable:
            self._runnable.remove(actor)
        self._tell(actor)
        if actor.orphans_die:
            for child in actor.children:
                self.kill(child)

    def close(self) -> None:
        """End everybody who is left."""
        for actor in self._actors:
            actor.is_over = True
            if actor.run is not None and not actor.run.dead:
                actor.run.throw(Died)

    def note(self, actor: str, what: str, key: str, result: Any = "", fault: str = "") -> None:
        """Add a line to the history."""
        self.events.append(Event(self.calls, self.clock_s, actor, what, key, result, fault))

    def _begin(self, actor: Actor, op: str, key: str, strike: Strike) -> Strike | None:
        """What a fault does before the call."""
        if strike.fault in (Fault.DIES_BEFORE, Fault.PAUSED_BEFORE):
            self.happened[strike.fault] += 1
            self.note(actor.name, op, key, fault=f"{strike.fault} (#{strike.name})")
        if strike.fault is Fault.DIES_BEFORE:
            self.kill(actor)
            raise Died
        if strike.fault is Fault.PAUSED_BEFORE:
            self.pause(actor, strike)
            return None
        return strike

    def _live(self, actor: Actor, act: Callable[[], Any]) -> None:
        try:
            actor.result = act()
        except Died:
            return
        except Stuck:
            raise
        except SapiensBatchError as error:
            actor.result = error
            self.note(actor.name, "ends with", type(error).__name__, str(error))
        except Exception as error:
            actor.result = error
            self.crashes.append(f"{actor.name}: {type(error).__name__}: {error}")
            self.note(actor.name, "crashes", "", traceback.format_exc())
        finally:
            if not actor.is_over:
                actor.is_over = True
                self._runnable.remove(actor)
                self._tell(actor)

    def _tell(self, actor: Actor) -> None:
        """Wake the one who waits for an actor."""
        parent = actor.parent
        if parent is not None and parent.is_waiting:
            parent.is_waiting = False
            if not parent.is_over:
                self._insert(parent)

    def _resume(self, actor: Actor) -> None:
        if not actor.is_over:
            actor.is_paused = False
            self.longest_sleep_s = max(self.longest_sleep_s, self.clock_s - actor.asleep_since_s)
            self.note(actor.name, "is resumed", "")
            self._insert(actor)

    def _insert(self, actor: Actor) -> None:
        """Add a runnable actor at a rank of its own."""
        self._runnable.insert(self._rng.randrange(len(self._runnable) + 1), actor)

    def _pick(self, actor: Actor | None) -> Actor:
        """Who goes on."""
        runnable = self._runnable
        if self._policy == "uniform":
            return runnable[int(self._rng.random() * len(runnable))]
        if self._policy == "runs":
            if actor is not None and self._rng.random() < 0.9:
                return actor
            return runnable[int(self._rng.random() * len(runnable))]
        if self._rng.random() < 0.04:
            runnable.append(runnable.pop(0))
        return runnable[0]

    def _switch(self, actor: Actor) -> None:
        if self.calls > MAX_CALLS:
            raise Stuck(f"not finished after {self.calls} calls")
        self.current = actor
        assert actor.run is not None
        actor.run.switch()

    def _let_happen(self) -> None:
        while self._timed and self._timed[0][0] <= self.calls:
            heapq.heappop(self._timed)[2]()
