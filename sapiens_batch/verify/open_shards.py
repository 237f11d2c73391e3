"""Check what open shards have so far: receipts that hold together and what they name.

A shard that a run seals while it is looked at is found whole: what looks lost is looked at again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sapiens_batch.errors import ProtocolError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.commit import tiling
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.receipt import Receipt
from sapiens_batch.storage import MissingObjectError
from sapiens_batch.verify.names import Names
from sapiens_batch.verify.objects import check_objects
from sapiens_batch.verify.report import Fault, Finding


def check_receipts(
    manifest: Manifest,
    receipt_keys: Iterable[str],
    names: Names,
    sample_fraction: float,
) -> Iterator[Finding]:
    """Everything that is wrong with one generation of an open shard; its names are taken in.

    Args:
        manifest: The job.
        receipt_keys: Keys of the generation's receipts.
        names: Where to note what they name.
        sample_fraction: Share of the objects to read.

    Raises:
        StorageError: The store cannot be read.
    """
    receipts: list[Receipt] = []
    findings: list[Finding] = []
    place = ("", 0)
    for key in receipt_keys:
        parsed = keys.parse_receipt(key)
        if parsed is None:
            continue
        place = parsed[:2]
        try:
            receipt = _read(manifest, key)
        except MissingObjectError:
            continue
        except ProtocolError as error:
            names.add_unreadable(place[0])
            findings.append(Finding(Fault.RECEIPT_DAMAGED, key, str(error), place[0]))
            continue
        names.add_receipt(receipt)
        receipts.append(receipt)
    findings += _contradictions(receipts, place)
    findings += _lost_objects(manifest, receipts, place[0], sample_fraction)
    if findings and not _is_sealed(manifest, *place):
        yield from findings


def _read(manifest: Manifest, key: str) -> Receipt:
    receipt = Receipt.from_bytes(manifest.store.read(key), key)
    if keys.receipt(receipt.shard_id, receipt.chunk, receipt.generation) != key:
        raise ProtocolError(
            f"{key}: names chunk {receipt.chunk} of shard {receipt.shard_id}, generation "
            f"{receipt.generation}"
        )
    return receipt


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
    manifest: Manifest, receipts: list[Receipt], shard_id: str, sample_fraction: float
) -> Iterator[Finding]:
    named = (
        stored
        for receipt in receipts
        for stored in (*receipt.parts.values(), *receipt.arrays.values())
    )
    for check in check_objects(manifest.store, named, sample_fraction):
        if check.fault is not None:
            yield Finding(check.fault, check.stored.key, check.message, shard_id)


def _is_sealed(manifest: Manifest, shard_id: str, generation: int) -> bool:
    folder = f"{keys.COMMITS}{keys.prefix(shard_id)}/"
    return manifest.generations(folder).get(shard_id, -1) >= generation
