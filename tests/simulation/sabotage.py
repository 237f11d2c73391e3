"""Deliberate faults in the protocol or in what it stands on, each of which the simulator must find.

Each is one rule of the protocol left out. They show that a history without violations says
something; nothing else uses them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

from sapiens_batch.driver import open_job
from sapiens_batch.protocol import documents, keys, manifest, plan, put, receipt, seal
from sapiens_batch.protocol.documents import StoredObject
from sapiens_batch.protocol.orders import RelabelOrder
from sapiens_batch.storage import Store
from sapiens_batch.verify import garbage
from tests.simulation.store import Held, Objects, SimulatedStore

Sabotage = Callable[[], contextlib.AbstractContextManager[Any]]


def objects_are_overwritten() -> contextlib.AbstractContextManager[Any]:
    """A store without create-if-absent."""
    honest = Objects._put

    def put_anyway(self: Objects, *args: Any) -> bool:
        self._held.pop(args[1], None)
        return honest(self, *args)

    return mock.patch.object(Objects, "_put", put_anyway)


def receipts_are_believed() -> contextlib.AbstractContextManager[Any]:
    """Sealing does not compare the rows of a receipt with their digest (I8)."""
    return mock.patch.object(receipt, "check_bytes", lambda *_, **__: None)


def documents_are_believed() -> contextlib.AbstractContextManager[Any]:
    """No document is compared with its own checksum (I8)."""
    return mock.patch.object(documents, "_is_sealed", lambda *_: True)


def base_rows_are_believed() -> contextlib.AbstractContextManager[Any]:
    """A generation takes rows over without comparing their object with its digest (I8)."""
    return mock.patch.object(documents, "check_bytes", lambda *_, **__: None)


def taken_objects_are_adopted() -> contextlib.AbstractContextManager[Any]:
    """An attempt that finds an array object takes it for its own."""

    def adopt(store: Store, header: Any, task: str, array: Any) -> StoredObject:
        root = keys.array(task, header.shard_id, header.generation)
        key = keys.array_chunk(root, header.index, array.row_ndim)
        data = array.data if store.create(key, array.data) else store.read(key)
        return StoredObject.describe(key, data, rows=array.rows)

    return mock.patch.object(put, "_put_array", adopt)


def roots_stay_scattered() -> contextlib.AbstractContextManager[Any]:
    """A commit names objects under several roots (I10)."""
    return mock.patch.object(seal._Seal, "_copied", lambda _, objects, root: list(objects))


@contextlib.contextmanager
def receipts_come_first() -> Iterator[None]:
    """An attempt puts its receipt before its arrays."""
    honest = put._put_receipt
    waiting: list[tuple[Store, str, bytes]] = []

    def describe(store: Store, header: Any, task: str, array: Any) -> StoredObject:
        root = keys.array(task, header.shard_id, header.generation, "e" * 32)
        key = keys.array_chunk(root, header.index, array.row_ndim)
        waiting.append((store, key, array.data))
        return StoredObject.describe(key, array.data, rows=array.rows)

    def put_receipt(store: Store, *args: Any) -> Any:
        mine = [one for one in waiting if one[0] is store]
        found = honest(store, *args)
        for _, key, data in mine:
            store.create(key, data)
        return found

    with (
        mock.patch.object(put, "_put_array", describe),
        mock.patch.object(put, "_put_receipt", put_receipt),
    ):
        yield


def gc_trusts_its_listing() -> contextlib.AbstractContextManager[Any]:
    """Gc does not look for commits and receipts that no listing showed (I9)."""
    return mock.patch.object(garbage._Collection, "is_needed", lambda *_: False)


def gc_trusts_its_own_clock() -> contextlib.AbstractContextManager[Any]:
    """Gc counts the age of objects from the clock of its machine."""
    return mock.patch.object(
        SimulatedStore, "now_s", lambda self: self._world.clock_s + self._actor.skew_s
    )


def copies_keep_their_age() -> contextlib.AbstractContextManager[Any]:
    """A copy is as old as what it was made of, as hard links are."""
    honest = Objects.copy

    def copy(self: Objects, actor: str, source: str, key: str) -> bool:
        before: Held = self._find(source)
        created = honest(self, actor, source, key)
        if created:
            self._held[key].modified_s = before.modified_s
        return created

    return mock.patch.object(Objects, "copy", copy)


@contextlib.contextmanager
def plans_are_what_is_listed() -> Iterator[None]:
    """A driver takes the plans that it finds listed for all there are (I9)."""

    def listed(store: Store, _: object) -> list[plan.PlanDocument]:
        found = (keys.parse_plan_document(info.key) for info in store.list(keys.PLAN))
        names = [keys.plan_document(number) for number in found if number is not None]
        return [plan.PlanDocument.from_bytes(store.read(name), name) for name in names]

    def plan_once(job: manifest.Manifest, resolved: Any) -> None:
        if not job.plans():
            plan.write_plan(job.store, resolved.shards)

    with (
        mock.patch.object(manifest, "list_plans", listed),
        mock.patch.object(open_job, "_plan", plan_once),
    ):
        yield


def plan_tables_are_adopted() -> contextlib.AbstractContextManager[Any]:
    """A plan takes over the table that it finds, and records the digest of what it read (I8)."""
    honest = plan.write_plan

    def write_plan(store: Store, shards: Iterable[Any], **settings: Any) -> plan.PlanDocument:
        own = keys.plan_table(0, "0" * 32)
        data = plan._encode(shards)
        if not store.create(own, data):
            data = store.read(own)
        with mock.patch.object(plan, "_encode", lambda _: data):
            return honest(store, (), **settings)

    return mock.patch.object(open_job, "write_plan", write_plan)


def orders_come_one_by_one() -> contextlib.AbstractContextManager[Any]:
    """The oldest order is carried out first, though a newer one says that its base is damaged."""

    def oldest(open_orders: Iterable[RelabelOrder]) -> RelabelOrder | None:
        waiting = sorted(open_orders, key=lambda order: order.generation)
        complete = [order for order in waiting if order.samples is None]
        return complete[-1] if complete else (waiting[0] if waiting else None)

    return mock.patch.object(manifest, "choose", oldest)


def orders_mend_themselves() -> contextlib.AbstractContextManager[Any]:
    """Damage in a generation is not ordered again, because that generation's order covers it."""
    honest = manifest.Manifest.relabel

    def relabel(self: manifest.Manifest, *args: Any, above: int = 0, **settings: Any) -> Any:
        return honest(self, *args, **settings)

    return mock.patch.object(manifest.Manifest, "relabel", relabel)


SABOTAGES: dict[str, Sabotage] = {
    one.__name__: one
    for one in (
        objects_are_overwritten,
        receipts_are_believed,
        documents_are_believed,
        base_rows_are_believed,
        taken_objects_are_adopted,
        roots_stay_scattered,
        receipts_come_first,
        gc_trusts_its_listing,
        gc_trusts_its_own_clock,
        copies_keep_their_age,
        plans_are_what_is_listed,
        plan_tables_are_adopted,
        orders_come_one_by_one,
        orders_mend_themselves,
    )
}
