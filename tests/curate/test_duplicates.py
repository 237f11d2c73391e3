"""Near-duplicates: links, groups, and which sample of a group is kept."""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sapiens_batch.curate.duplicates import NUM_LINKS, components, links, representatives
from sapiens_batch.labelset import LabelSet
from sapiens_batch.search import SearchIndex, build_index
from sapiens_batch.storage import open_store
from tests.search.embedded_job import Row, commit_shard, start_job

Edges = list[tuple[int, int]]


def index_of(*shards: list[float], segment_rows: int = 100) -> SearchIndex:
    """An index of 2-d vectors at angles in degrees, one list for each shard."""
    job, store = (open_store(f"memory://{uuid.uuid4().hex}") for _ in range(2))
    manifest = start_job(job, 2)
    for number, angles in enumerate(shards):
        turned = np.deg2rad(angles)
        rows = [Row([np.cos(one), np.sin(one)]) for one in turned]
        commit_shard(job, number, rows, 2)
    return SearchIndex(store, build_index(LabelSet(manifest), store, segment_rows=segment_rows))


def test_samples_at_or_above_the_similarity_are_linked_across_segments() -> None:
    index = index_of([0, 60], [3, 120], segment_rows=1)
    found = {frozenset(pair) for pair in links(index, float(np.cos(np.deg2rad(5)))).tolist()}
    assert found == {frozenset({0, 2})}


def test_a_picture_that_is_there_many_times_is_one_group() -> None:
    index = index_of([0.0] * (3 * NUM_LINKS), [90.0])
    groups = components(len(index), links(index, 0.999))
    assert groups.tolist() == [0] * (3 * NUM_LINKS) + [3 * NUM_LINKS]


def test_groups_hang_together_through_links() -> None:
    pairs = np.array([[0, 3], [3, 5], [1, 4]])
    assert components(6, pairs).tolist() == [0, 1, 2, 0, 1, 0]
    assert components(3, np.empty((0, 2), np.int64)).tolist() == [0, 1, 2]


@given(st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=40))
@settings(max_examples=60, deadline=None)
def test_groups_are_the_connected_components(edges: Edges) -> None:
    found = components(30, np.array(edges, np.int64).reshape(-1, 2))
    neighbours: dict[int, set[int]] = {row: {row} for row in range(30)}
    for first, second in edges:
        merged = neighbours[first] | neighbours[second]
        for row in merged:
            neighbours[row] = merged
    assert found.tolist() == [min(neighbours[row]) for row in range(30)]


def test_the_largest_picture_of_a_group_is_kept_then_the_first() -> None:
    candidates = pa.table({"num_pixels": pa.array([10, 30, 30, 5, None, 7], pa.int64())})
    kept, sizes = representatives(np.array([0, 0, 0, 3, 3, 5]), candidates)
    assert kept.tolist() == [1, 3, 5]
    assert sizes.tolist() == [3, 2, 1]


def test_samples_without_an_embedding_have_no_duplicates() -> None:
    candidates = pa.table({"num_pixels": pa.array([1, 1, 1], pa.int64())})
    kept, sizes = representatives(np.array([-1, 1, -1]), candidates)
    assert (kept.tolist(), sizes.tolist()) == ([0, 1, 2], [1, 1, 1])
