"""The simulated store: objects in memory, with the faults of real stores between call and answer.

One `SimulatedStore` belongs to one actor; all of a history share one `Objects`. Who acts when is
left to `world`, what is right and wrong to `invariants`, which is told of everything that changes.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from sapiens_batch.errors import StorageError
from sapiens_batch.storage.base import (
    Capabilities,
    MissingObjectError,
    ObjectInfo,
    check_key,
    check_range,
)
from tests.simulation.faults import Damage, DamageStrike, Fault, Strike
from tests.simulation.world import Actor, Died, World

_NEVER: Final = float("inf")


@dataclass(slots=True)
class Blob:
    """Bytes on a disk.

    Attributes:
        data: As they are now.
        written: As they were written, before any damage.
    """

    data: bytes
    written: bytes


@dataclass(slots=True)
class Held:
    """One object.

    Attributes:
        blob: Its bytes; hard links share them.
        modified_s: Its time by the store's clock.
        listed_from_s: From when on listings show it.
    """

    blob: Blob
    modified_s: float
    listed_from_s: float


class Watcher(Protocol):
    """Who is told of every change."""

    def created(self, actor: str, key: str, data: bytes) -> None:
        """An object was created with these bytes."""
        ...

    def copied(self, source: str, key: str) -> None:
        """An object is about to be copied."""
        ...

    def removed(self, actor: str, key: str) -> None:
        """An actor removed an object."""
        ...

    def damaged(self, key: str) -> None:
        """An object was damaged or lost."""
        ...


class Objects:
    """The objects of a history.

    Args:
        rng: Draws how the store behaves.
        world: Its time.
        watcher: Told of every change.
        damages: What is to be damaged.
    """

    def __init__(
        self, rng: random.Random, world: World, watcher: Watcher, damages: list[DamageStrike]
    ) -> None:
        self._rng = rng
        self._world = world
        self._watcher = watcher
        self._damages = damages
        self._held: dict[str, Held] = {}
        self._ghosts: dict[str, tuple[ObjectInfo, float]] = {}
        self.max_lag_s = rng.choice((0.0, 0.0, 2.0, 20.0))
        self.page = rng.choice((2, 5, 1000, 1000))
        self._salt = rng.choice((b"", b"", b"%d" % rng.randrange(100)))
        self._orders: dict[str, tuple[int, str]] = {}
        self.links = rng.random() < 0.5

    def create(self, actor: str, key: str, data: bytes) -> bool:
        """Create an object if its key is free."""
        return self._put(actor, key, Blob(data, data), self._world.clock_s)

    def copy(self, actor: str, source: str, key: str) -> bool:
        """Copy or link an object; the two share bytes, and so damage, where the store links."""
        held = self._find(source)
        blob = held.blob if self.links else Blob(held.blob.data, held.blob.written)
        self._watcher.copied(source, key)
        return self._put(actor, key, blob, self._world.clock_s)

    def read(self, key: str) -> bytes:
        """The bytes of an object."""
        return self._find(key).blob.data

    def find(self, key: str) -> Held | None:
        """An object as it really is."""
        return self._held.get(key)

    def keys(self) -> list[str]:
        """Every key that there really is."""
        return list(self._held)

    def delete(self, actor: str, key: str) -> None:
        """Remove an object."""
        held = self._held.pop(key, None)
        if held is not None:
            self._leave_ghost(key, held)
            self._watcher.removed(actor, key)

    def page_after(self, prefix: str, last: tuple[int, str] | None) -> list[ObjectInfo]:
        """The next page of a listing, as stale as the store is."""
        now_s = self._world.clock_s
        matching = [one for one in self._held.items() if one[0].startswith(prefix)]
        found = [ObjectInfo(key, len(one.blob.data), one.modified_s) for key, one in matching]
        if self.max_lag_s:
            shown = [one for one in found if self._held[one.key].listed_from_s <= now_s]
            self._world.happened["listing misses an object"] += len(found) - len(shown)
            ghosts = [
                info
                for key, (info, until_s) in self._ghosts.items()
                if until_s > now_s and key.startswith(prefix) and key not in self._held
            ]
            self._world.happened["listing shows a removed object"] += len(ghosts)
            found = [*shown, *ghosts]
        if last is not None:
            found = [one for one in found if self.order(one.key) > last]
        found.sort(key=self._order_of)
        return found[: self.page]

    def _order_of(self, info: ObjectInfo) -> tuple[int, str]:
        return self.order(info.key)

    def order(self, key: str) -> tuple[int, str]:
        """Where a key comes in listings: by code point, or folder by folder."""
        if not self._salt:
            return 0, key
        order = self._orders.get(key)
        if order is None:
            order = zlib.crc32(key.rpartition("/")[0].encode() + self._salt), key
            self._orders[key] = order
        return order

    def settle(self) -> None:
        """From now on listings are right and nothing is damaged."""
        self.max_lag_s = 0.0
        self._ghosts.clear()
        self._damages.clear()

    def _find(self, key: str) -> Held:
        held = self._held.get(key)
        if held is None:
            raise MissingObjectError(f"simulated/{key} does not exist")
        return held

    def _put(self, actor: str, key: str, blob: Blob, modified_s: float) -> bool:
        if key in self._held:
            return False
        lag_s = self._rng.random() * self.max_lag_s if self.max_lag_s else 0.0
        self._held[key] = Held(blob, modified_s, self._world.clock_s + lag_s)
        self._watcher.created(actor, key, blob.written)
        for strike in self._damages:
            if key.startswith(strike.folder):
                strike.skip -= 1
                if strike.skip < 0:
                    self._damages.remove(strike)
                    self._world.at(strike.delay, partial(self._damage, strike, key))
                    break
        return True

    def _damage(self, strike: DamageStrike, key: str) -> None:
        held = self._held.get(key)
        if held is None or not held.blob.data:
            return
        self._world.happened[strike.damage] += 1
        data = held.blob.data
        place = int(strike.place * len(data))
        if strike.damage is Damage.LOST:
            self._leave_ghost(key, self._held.pop(key))
        elif strike.damage is Damage.TRUNCATED:
            held.blob.data = data[:place]
        else:
            bit = 1 << (int(strike.place * len(data) * 8) % 8)
            held.blob.data = data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]
        self._world.note("(damage)", strike.damage, key, fault=f"#{strike.name}")
        self._watcher.damaged(key)

    def _leave_ghost(self, key: str, held: Held) -> None:
        if self.max_lag_s:
            info = ObjectInfo(key, len(held.blob.data), held.modified_s)
            lag_s = self._rng.random() * self.max_lag_s
            self._ghosts[key] = (info, self._world.clock_s + lag_s)


class SimulatedStore:
    """A `Store` as one actor has it.

    Args:
        objects: What all actors share.
        world: Time and the others.
        actor: Who calls.
    """

    def __init__(self, objects: Objects, world: World, actor: Actor) -> None:
        self._objects = objects
        self._world = world
        self._actor = actor

    @property
    def uri(self) -> str:
        """See `Store.uri`."""
        return "simulated"

    def create(self, key: str, data: bytes | memoryview) -> bool:
        """See `Store.create`."""
        payload = bytes(data)
        objects, name = self._objects, self._actor.name
        return bool(
            self._call(
                "create",
                key,
                lambda: objects.create(name, key, payload),
                # taken: ours if it reads the same, whoever made it
                lambda: objects.read(key) == payload,
            )
        )

    def copy(self, source: str, key: str) -> bool:
        """See `Store.copy`."""
        check_key(source)
        name = self._actor.name
        return bool(self._call("copy", key, lambda: self._objects.copy(name, source, key)))

    def read(self, key: str) -> bytes:
        """See `Store.read`."""
        data: bytes = self._call("read", key, lambda: self._objects.read(key))
        return data

    def read_range(self, key: str, start: int, stop: int | None = None) -> bytes:
        """See `Store.read_range`."""
        data: bytes = self._call("read", key, lambda: self._objects.read(key)[start:stop])
        return check_range(self.uri, key, data, start, stop)

    def exists(self, key: str) -> bool:
        """See `Store.exists`."""
        found: bool = self._call("exists", key, lambda: self._objects.find(key) is not None)
        return found

    def size(self, key: str) -> int | None:
        """See `Store.size`."""
        size: int | None = self._call("size", key, lambda: self._size(key))
        return size

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See `Store.list`; pages show the store as it is when they are asked for."""
        last: tuple[int, str] | None = None
        while True:
            after = last
            page: list[ObjectInfo] = self._call(
                "list", prefix, partial(self._objects.page_after, prefix, after), is_key=False
            )
            yield from page
            if len(page) < self._objects.page:
                return
            last = self._objects.order(page[-1].key)

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        self._call("delete", key, lambda: self._objects.delete(self._actor.name, key))

    def now_s(self) -> float:
        """See `Store.now_s`."""
        now_s: float = self._call("clock", "clock", lambda: self._world.clock_s)
        return now_s

    def probe(self) -> Capabilities:
        """See `Store.probe`."""
        return Capabilities(conditional_create=True, backend="simulated")

    def adapted(self, capabilities: Capabilities) -> SimulatedStore:
        """See `Store.adapted`."""
        return self

    def unfinished(self) -> Iterator[ObjectInfo]:
        """See `Store.unfinished`."""
        return iter(())

    def _size(self, key: str) -> int | None:
        held = self._objects.find(key)
        return None if held is None else len(held.blob.data)

    def _call(
        self,
        op: str,
        key: str,
        effect: Callable[[], Any],
        repeated: Callable[[], bool] | None = None,
        *,
        is_key: bool = True,
    ) -> Any:
        """One call: others act, then it takes effect, or a fault hits it."""
        if is_key:
            check_key(key)
        world, name = self._world, self._actor.name
        strike = world.enter(self._actor, op, key)
        if strike is not None:
            return self._struck(strike, op, key, effect, repeated)
        try:
            result = effect()
        except StorageError as error:
            world.note(name, op, key, error)
            raise
        world.note(name, op, key, result)
        return result

    def _struck(
        self,
        strike: Strike,
        op: str,
        key: str,
        effect: Callable[[], Any],
        repeated: Callable[[], bool] | None,
    ) -> Any:
        """A call that a fault hits."""
        world, actor, fault = self._world, self._actor, strike.fault
        label = f"{fault} (#{strike.name})"
        if fault is Fault.REPEATED and repeated is None:
            fault, label = Fault.REFUSED, f"{Fault.REFUSED} (#{strike.name})"
        world.happened[fault] += 1
        if fault in (Fault.REFUSED, Fault.LANDS_LATE):
            world.note(actor.name, op, key, fault=label)
            if fault is Fault.LANDS_LATE:
                world.later(strike.until, strike.delay, lambda: self._land(op, key, effect))
                world.kill(actor)
                raise Died
            raise StorageError(f"simulated/{key}: {op} failed, try again")
        result = effect()
        if fault is Fault.REPEATED and repeated is not None:
            result = repeated()
        world.note(actor.name, op, key, result, label)
        if fault is Fault.LOST_ANSWER:
            raise StorageError(f"simulated/{key}: the answer to {op} was lost")
        if fault is Fault.DIES_AFTER:
            world.kill(actor)
            raise Died
        if fault is Fault.PAUSED_AFTER:
            world.pause(actor, strike)
        return result

    def _land(self, op: str, key: str, effect: Callable[[], Any]) -> None:
        """A request of an actor that is dead takes effect."""
        try:
            result = effect()
        except StorageError as error:
            result = error
        self._world.note(f"{self._actor.name} (dead)", op, key, result)
