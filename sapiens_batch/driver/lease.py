"""A lease that keeps a second driver away, for stores that cannot create an object conditionally.

Such a store lets two creates of one key both succeed, so receipts and commits cannot decide a race
and only one driver may run. A driver claims the job with an object of its own that it renews; a
driver that finds an older claim alive gives way. Ages are differences between times that the store
itself reports, so clocks of machines do not matter; only how long this driver was paused is told by
its own. Stores with conditional create need no lease.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sapiens_batch.errors import StorageError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.documents import Count, Document, Hex32, now
from sapiens_batch.storage import MissingObjectError, Store

LOOKS = 5
"""Times to look for a claim that is renewed while it is looked at: it is under another key then."""


# counts the time that the machine was suspended; elsewhere, as on macOS, MONOTONIC does
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """How fast a lease moves.

    Attributes:
        renew_s: Seconds between renewals.
        expire_s: A claim that was not renewed for so long is dead; several renewals.
        settle_s: Seconds until every driver sees a new claim in a listing.
    """

    renew_s: float = 20.0
    expire_s: float = 120.0
    settle_s: float = 2.0

    @property
    def paused_s(self) -> float:
        """A driver that did not renew for so long may have been taken for dead."""
        return self.expire_s - self.renew_s


class Claim(Document):
    """A driver's claim to be the only one.

    Attributes:
        since: Number of the driver's first claim; the smallest one alive holds the job.
        owner: The driver, unique.
        created: ISO 8601 time in UTC, for people.
    """

    since: Count
    owner: Hex32
    created: str


class Lease:
    """The claims of one driver.

    Args:
        store: The job directory.
        timing: How fast the lease moves.
    """

    def __init__(self, store: Store, timing: LeaseTiming) -> None:
        self._store = store
        self._timing = timing
        self._owner = uuid.uuid4().hex
        self._number = max((number for number, _, _ in self._listed()), default=0)
        self._since = self._number + 1
        self._key = ""
        self._renew()

    def rival(self) -> Claim | None:
        """An older claim that is alive, or None while this driver holds the job."""
        for _ in range(LOOKS):
            rivals, gone = self._others()
            older = [one for one in rivals if (one.since, one.owner) < (self._since, self._owner)]
            if older:
                return min(older, key=lambda one: (one.since, one.owner))
            if not gone:
                break
        return None

    def _others(self) -> tuple[list[Claim], bool]:
        """Claims of others that are alive, and whether one was renewed or given up meanwhile."""
        listed = list(self._listed())
        present_s = max((modified_s for _, _, modified_s in listed), default=0.0)
        found, gone = [], False
        for _, key, modified_s in listed:
            if key == self._key or present_s - modified_s > self._timing.expire_s:
                continue
            try:
                found.append(Claim.from_bytes(self._store.read(key), key))
            except MissingObjectError:
                gone = True
        return found, gone

    def renew(self) -> bool:
        """Show that this driver is alive; False when it does not hold the job any more.

        That is when an older claim is alive as well, or when this driver was paused for so long
        that another one may have taken over.

        Raises:
            StorageError: The store failed.
        """
        renewed_s = self._renewed_s
        if _now_s() - renewed_s > self._timing.paused_s:
            return False
        self._renew()
        # it may have been paused in the midst of this
        if _now_s() - renewed_s > self._timing.paused_s:
            return False
        return self.rival() is None

    def give_up(self) -> None:
        """Remove the claim, so that the next driver need not wait for it to expire."""
        self._store.delete(self._key)

    def _renew(self) -> None:
        self._renewed_s = _now_s()  # before the claim is there: rather too early than too late
        self._number += 1
        before, self._key = self._key, keys.lease(self._number, self._owner)
        claim = Claim(since=self._since, owner=self._owner, created=now())
        self._store.create(self._key, claim.to_bytes())
        if before:
            self._store.delete(before)

    def _listed(self) -> Iterator[tuple[int, str, float]]:
        """(number, key, modification time) of every claim."""
        for info in self._store.list(keys.LEASES):
            number = info.key.removeprefix(keys.LEASES).partition("-")[0]
            if number.isdecimal():
                yield int(number), info.key, info.modified_s


@contextmanager
def sole_driver(store: Store, timing: LeaseTiming | None = None) -> Iterator[threading.Event]:
    """Hold a job against other drivers; yields an event that is set when it is lost.

    Raises:
        StorageError: Another driver holds the job, or the store failed.
    """
    timing = timing or LeaseTiming()
    lease = Lease(store, timing)
    lost, done = threading.Event(), threading.Event()
    try:
        time.sleep(timing.settle_s)
        rival = lease.rival()
        if rival is not None:
            raise StorageError(
                f"{store.uri} belongs to a driver that started before this one (its claim is of "
                f"{rival.created}). This store cannot create objects conditionally, so only one "
                f"driver may run. Wait for it, or {timing.expire_s:g} s if it has died."
            )
        thread = threading.Thread(
            target=_keep, args=(lease, timing, done, lost), name="lease", daemon=True
        )
        thread.start()
        yield lost
        done.set()
        thread.join()
    finally:
        done.set()
        lease.give_up()


def _keep(lease: Lease, timing: LeaseTiming, done: threading.Event, lost: threading.Event) -> None:
    renewed_s = _now_s()
    while not lost.is_set() and not done.wait(timing.renew_s):
        try:
            if not lease.renew():
                lost.set()
            renewed_s = _now_s()
        except StorageError:
            # another driver may take the claim for dead soon
            if _now_s() - renewed_s > timing.expire_s / 2:
                lost.set()


def _now_s() -> float:
    return time.clock_gettime(_CLOCK)
