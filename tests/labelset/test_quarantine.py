"""Quarantined samples are listed from committed tables only."""

from __future__ import annotations

import uuid

import pytest

from sapiens_batch.job.manifest import Manifest
from sapiens_batch.labelset import Quarantined, quarantined
from sapiens_batch.labelset.quarantine import matches
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
