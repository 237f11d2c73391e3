"""Clusters of embeddings and even samples over them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapiens_batch.curate.balance import balanced, clusters
from sapiens_batch.errors import SpecError
from sapiens_batch.records import Array


def blobs(sizes: list[int]) -> Array:
    """Vectors around as many axes, in turn of cluster."""
    rng = np.random.default_rng(0)
    centres = np.repeat(np.eye(len(sizes)), sizes, axis=0)
    vectors = centres + rng.normal(0, 0.05, centres.shape)
    unit: Array = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit


def test_well_separated_groups_become_clusters() -> None:
    vectors = blobs([30, 10, 20])
    found = clusters([vectors[:25], vectors[25:]], 60, 3, seed=3)
    groups = [set(found[:30]), set(found[30:40]), set(found[40:])]
    assert [len(group) for group in groups] == [1, 1, 1]
    assert set.union(*groups) == {0, 1, 2}


def test_the_same_seed_gives_the_same_clusters() -> None:
    vectors = blobs([30, 10, 20])
    first, second = (clusters([vectors], 60, 4, seed=5) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_more_clusters_than_vectors_are_refused() -> None:
    with pytest.raises(SpecError, match=r"balance\.clusters: 5, but only 3 samples"):
        clusters([blobs([3])], 3, 5, seed=0)


def test_a_sample_is_shared_evenly_as_far_as_clusters_have_members() -> None:
    cluster_of = np.repeat([0, 1, 2], [100, 2, 50])
    taken = balanced(cluster_of, 22, seed=0)
    assert np.bincount(cluster_of[taken]).tolist() == [10, 2, 10]
    assert (np.diff(taken) > 0).all()


def test_a_sample_larger_than_what_is_there_is_everything() -> None:
    assert balanced(np.array([1, 0, 1]), 10, seed=0).tolist() == [0, 1, 2]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(1, 60), st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_no_cluster_gives_two_more_than_another_that_has_some_left(
    members: list[int], num: int, seed: int
) -> None:
    cluster_of = np.array(members)
    taken = balanced(cluster_of, num, seed)
    assert len(set(taken.tolist())) == len(taken) == min(num, len(members))
    given_by = np.bincount(cluster_of[taken], minlength=5)
    left = np.bincount(cluster_of, minlength=5) - given_by
    assert given_by.max() - min(given_by[left > 0], default=given_by.max()) <= 1
