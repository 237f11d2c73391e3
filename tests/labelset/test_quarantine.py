"""Quarantined samples are listed from committed tables only."""

from __future__ import annotations

import uuid

import pytest

from sapiens_batch.errors import InputError
from sapiens_batch.labelset import Quarantined, quarantined
from sapiens_batch.labelset.quarantine import check_asked, matches
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.storage.memory import MemoryStore
from tests.labelset.built_job import SHARDS, write_job


@pytest.fixture
def manifest() -> Manifest:
    store = MemoryStore(uuid.uuid4().hex)
    write_job(store)
    return Manifest.open(store)


def test_every_quarantined_sample_of_a_committed_shard_is_listed(manifest: Manifest) -> None:
    assert list(quarantined(manifest)) == [
        Quarantined(SHARDS[0].shard_id, "0.tar", 1, "k1", "decode.truncated", ""),
        Quarantined(SHARDS[1].shard_id, "1.tar", 1, "k1", "decode.truncated", ""),
    ]


def test_samples_are_chosen_by_reason_and_key(manifest: Manifest) -> None:
    assert len(list(quarantined(manifest, reasons=["decode"]))) == 2
    assert len(list(quarantined(manifest, reasons=["crash", "decode.truncated"]))) == 2
    assert list(quarantined(manifest, reasons=["crash"])) == []
    assert len(list(quarantined(manifest, keys=["k1", "k2"]))) == 2
    assert list(quarantined(manifest, keys=["k2"])) == []


def test_a_reason_is_matched_by_whole_parts() -> None:
    assert matches("decode.truncated", None)
    assert matches("decode.truncated", ["decode"])
    assert matches("crash", ["crash"])
    assert not matches("decoder.x", ["decode"])
    assert not matches("decode", ["decode.truncated"])


def test_what_no_quarantined_sample_has_is_refused_with_the_reasons_there_are(
    manifest: Manifest,
) -> None:
    check_asked(manifest, reasons=["crash", "decode"], keys=["k1", "gone"])
    with pytest.raises(InputError, match=r"reason 'nonsense'; there are decode\.truncated 2"):
        check_asked(manifest, reasons=["nonsense"])
    with pytest.raises(InputError, match=r"reason 'decode' and key 'k2'; there are .*`errors`"):
        check_asked(manifest, reasons=["decode"], keys=["k2"])


def test_a_job_without_quarantined_samples_may_be_asked_for_any_reason() -> None:
    store = MemoryStore(uuid.uuid4().hex)
    write_job(store, committed=())
    check_asked(Manifest.open(store), reasons=["crash"], keys=["k"])
