"""Two jobs over one corpus, joined sample by sample."""

from __future__ import annotations

import uuid

import pytest

from sapiens_batch.errors import InputError
from sapiens_batch.labelset import LabelSet, open_labels
from sapiens_batch.labelset.joined import join_labels
from sapiens_batch.storage import open_store
from tests.labelset.built_job import SHARDS, write_job

FIRST, SECOND, _ = (shard.shard_id for shard in SHARDS)


def job(*committed: int) -> LabelSet:
    uri = f"memory://{uuid.uuid4().hex}"
    write_job(open_store(uri), committed)
    return open_labels(uri)


def test_samples_of_the_same_key_are_joined_though_their_shards_differ() -> None:
    joined = join_labels(job(0), job(1))
    assert joined.places["key"].to_pylist() == ["k0", "k1", "k2", "k3", "k4"]
    assert set(joined.places["shard_id"].to_pylist()) == {FIRST}
    assert set(joined.places["shard_id_second"].to_pylist()) == {SECOND}
    assert (len(joined), joined.num_only_first, joined.num_only_second) == (5, 1, 1)


def test_both_samples_have_their_own_labels() -> None:
    joined = join_labels(job(0), job(1), wanted="num_persons = 2")
    ((first, second),) = joined.samples()
    assert (first.row["key"], second.row["key"]) == ("k3", "k3")
    mine, other = first.array("seg"), second.array("seg")
    assert mine is not None
    assert other is not None
    assert int(other[0, 0]) - int(mine[0, 0]) == 20


def test_samples_at_the_same_place_are_joined_where_keys_repeat() -> None:
    first, second = job(0, 1), job(0, 1)
    with pytest.raises(InputError, match="5 keys belong to several samples, for example 'k"):
        join_labels(first, second)
    joined = join_labels(first, second, by="place")
    assert joined.places["index_second"].to_pylist() == [*range(6), *range(6)]
    assert joined.places["shard_id"].to_pylist() == [FIRST] * 6 + [SECOND] * 6


def test_jobs_without_a_common_sample_join_to_nothing() -> None:
    joined = join_labels(job(0), job(1), by="place")
    assert (len(joined), joined.num_only_first, joined.num_only_second) == (0, 6, 6)
    assert list(joined.samples()) == []
