"""Check what open shards have so far: receipts that hold together and what they name.

A shard that a run seals while it is looked at is found whole: what looks lost is looked at again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sapiens_batch.errors import DamagedReceiptError, ProtocolError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.commit import tiling
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.receipt import Receipt, read_receipt
from sapiens_batch.storage import Store
from sapiens_batch.verify.names import Names
from sapiens_batch.verify.objects import check_objects
from sapiens_batch.verify.report import Fault, Finding


def check_receipts(
    manifest: Manifest,
    place: tuple[str, int],
    chunks: Iterable[int],
    names: Names,
    sample_fraction: float,
) -> Iterator[Finding]:
    """Everything that is wrong with one generation of an open shard; its names are taken in.

    Args:
        manifest: The job.
        place: The shard and the generation.
        chunks: Chunks with a receipt.
        names: Where to note what they name.
        sample_fraction: Share of the array objects to read; receipts are read whole.

    Raises:
        StorageError: The store cannot be read.
    """
    shard_id, generation = place
    store = manifest.store
    receipts: list[Receipt] = []
    findings: list[Finding] = []
    for chunk in chunks:
        try:
            receipt, _ = read_receipt(store, shard_id, chunk, generation)
        except DamagedReceiptError as error:
            names.add_unreadable(shard_id)
            key = keys.receipt(shard_id, chunk, generation)
            findings.append(Finding(Fault.RECEIPT_DAMAGED, key, str(error), shard_id))
            continue
        names.add_receipt(receipt)
        receipts.append(receipt)
    findings += _contradictions(receipts, place)
    findings += _lost_objects(store, receipts, shard_id, sample_fraction)
    newest = names.newest(shard_id)
    if findings and manifest.newest_generation(shard_id, listed=newest) < generation:
        yield from findings


def _contradictions(receipts: list[Receipt], place: tuple[str, int]) -> Iterator[Finding]:
    """Receipts of a first generation that cannot be of one shard (I5)."""
    first = next((one for one in receipts if not one.last), None)
    if place[1] != 0 or first is None:
        return
    try:
        tiling(receipts, first.stop - first.start)
    except ProtocolError as error:
        yield Finding(Fault.RECEIPTS_CONTRADICT, keys.receipts(*place), str(error), place[0])


def _lost_objects(
    store: Store, receipts: list[Receipt], shard_id: str, sample_fraction: float
) -> Iterator[Finding]:
    named = (stored for receipt in receipts for stored in receipt.arrays.values())
    for check in check_objects(store, named, sample_fraction):
        if check.fault is not None:
            yield Finding(check.fault, check.stored.key, check.message, shard_id)
