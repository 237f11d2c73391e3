"""Queries: neighbours over segments, in a fixed order."""

from __future__ import annotations

import uuid

import numpy as np
import pytest

from sapiens_batch.errors import InputError
from sapiens_batch.labelset import LabelSet
from sapiens_batch.search import SearchIndex, build_index
from sapiens_batch.storage import Store, open_store
from tests.search.embedded_job import Row, commit_shard, shard_id, start_job

ANGLES = [0, 10, 20, 90, 180]


def memory() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}")


@pytest.fixture(scope="module")
def labels() -> LabelSet:
    """Two shards of vectors at angles 0, 10, 20, 90, 180 degrees and 5 degrees more; one lost."""
    job = memory()
    manifest = start_job(job, 2)
    for number, shift in enumerate((0, 5)):
        angles = np.deg2rad([angle + shift for angle in ANGLES])
        rows = [Row(None), *(Row([np.cos(one), np.sin(one)]) for one in angles)]
        commit_shard(job, number, rows, 2)
    return LabelSet(manifest)


@pytest.fixture(scope="module", params=[1, 100])
def index(labels: LabelSet, request: pytest.FixtureRequest) -> SearchIndex:
    """An index of two segments, and one of a single segment."""
    store = memory()
    view = build_index(labels, store, segment_rows=request.param)
    assert len(view.segments) == (2 if request.param == 1 else 1)
    return SearchIndex(store, view)


def test_the_most_similar_come_first_whatever_segment_they_are_in(index: SearchIndex) -> None:
    found = index.search(np.array([2.0, 0.0]), 4)
    assert found["key"].to_pylist() == ["0-1", "1-1", "0-2", "1-2"]
    assert found["rank"].to_pylist() == [0, 1, 2, 3]
    assert found["shard_id"].to_pylist() == [shard_id(n) for n in (0, 1, 0, 1)]
    np.testing.assert_allclose(found["similarity"], np.cos(np.deg2rad([0, 5, 10, 15])), atol=1e-6)


def test_several_queries_are_answered_one_after_the_other(index: SearchIndex) -> None:
    found = index.search(np.array([[1.0, 0.0], [-1.0, 0.0]]), 2)
    assert found["query"].to_pylist() == [0, 0, 1, 1]
    assert found["key"].to_pylist() == ["0-1", "1-1", "0-5", "1-5"]


def test_a_small_index_gives_all_it_has(index: SearchIndex) -> None:
    assert len(index.search(np.array([1.0, 0.0]), 50)) == 10


def test_a_sample_does_not_find_itself(labels: LabelSet, index: SearchIndex) -> None:
    found = index.search_like(labels.sample("0-1"), 3)
    assert found["key"].to_pylist() == ["1-1", "0-2", "1-2"]
    assert found["rank"].to_pylist() == [0, 1, 2]


def test_a_sample_without_an_embedding_cannot_be_searched_by(
    labels: LabelSet, index: SearchIndex
) -> None:
    with pytest.raises(InputError, match=r"'0-0' has no embedding.*decode\.truncated"):
        index.search_like(labels.sample("0-0"))


def test_vectors_of_another_length_are_refused(index: SearchIndex) -> None:
    with pytest.raises(InputError, match=r"shape \(3,\).*takes vectors of 2 numbers"):
        index.search(np.ones(3))
    with pytest.raises(InputError, match="query 1 is zero or not finite"):
        index.search(np.array([[1.0, 0.0], [0.0, 0.0]]))


def test_ties_come_in_stored_order() -> None:
    job = memory()
    manifest = start_job(job, 2)
    for number in range(2):
        commit_shard(job, number, [Row([1, 0])] * 3, 2)
    store = memory()
    view = build_index(LabelSet(manifest), store, segment_rows=1)
    found = SearchIndex(store, view).search(np.array([1.0, 0.0]), 6)
    assert found["key"].to_pylist() == ["0-0", "0-1", "0-2", "1-0", "1-1", "1-2"]
