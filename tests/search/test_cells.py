"""Nearest neighbours by cells against exact ones, and the recall that is promised."""

from __future__ import annotations

import numpy as np
import pytest

from sapiens_batch.errors import ProtocolError
from sapiens_batch.records import Array
from sapiens_batch.search.cells import (
    build_cells,
    from_bytes,
    nearest,
    recall_of,
    stored_vectors,
    to_bytes,
)


def unit_vectors(num: int, dimension: int, seed: int = 0) -> Array:
    vectors = np.random.default_rng(seed).normal(size=(num, dimension)).astype(np.float32)
    unit: Array = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def test_few_vectors_are_compared_with_all() -> None:
    cells = build_cells(unit_vectors(50, 8), target_recall=0.9)
    assert (cells.num_cells, cells.probes, cells.recall) == (0, 0, 1.0)


def test_the_nearest_are_those_with_the_largest_inner_product() -> None:
    vectors = unit_vectors(50, 8)
    similarities, rows = nearest(build_cells(vectors, target_recall=0.9).index, vectors[:5], 3)
    products = vectors[:5] @ vectors.T
    expected = np.argsort(-products, axis=1)[:, :3]
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_allclose(
        similarities, np.take_along_axis(products, expected, axis=1), atol=1e-5
    )


def test_many_vectors_reach_the_wanted_recall_on_queries_that_were_not_indexed() -> None:
    vectors, queries = unit_vectors(3000, 16), unit_vectors(100, 16, seed=1)
    cells = build_cells(vectors, target_recall=0.95, exact_rows=1000)
    assert cells.num_cells == 219
    assert 0.95 <= cells.recall <= 1
    index = from_bytes(to_bytes(cells), cells.probes, "k")
    found, _ = nearest(index, queries, 10)
    exact = -np.sort(-(queries @ vectors.T), axis=1)[:, :10]
    assert recall_of(found, exact) >= 0.93


def test_an_index_that_must_find_all_looks_into_every_cell_if_it_has_to() -> None:
    cells = build_cells(unit_vectors(1200, 32), target_recall=1.0, exact_rows=1000)
    assert cells.recall == 1.0


def test_an_index_gives_its_vectors_back_in_order() -> None:
    vectors = unit_vectors(1500, 8)
    for exact_rows in (1000, 2000):
        cells = build_cells(vectors, target_recall=0.9, exact_rows=exact_rows)
        index = from_bytes(to_bytes(cells), cells.probes, "k")
        np.testing.assert_array_equal(stored_vectors(index), vectors)


def test_an_empty_index_finds_nothing() -> None:
    index = build_cells(np.empty((0, 8), np.float32), target_recall=0.9).index
    similarities, rows = nearest(index, unit_vectors(2, 8), 3)
    assert (rows == -1).all()
    assert (similarities == -np.inf).all()
    assert stored_vectors(index).shape == (0, 8)


def test_building_twice_gives_the_same_bytes() -> None:
    vectors = unit_vectors(1500, 8)
    first, second = (
        to_bytes(build_cells(vectors, target_recall=0.9, exact_rows=1000)) for _ in range(2)
    )
    assert first == second


def test_equally_similar_neighbours_count_as_found() -> None:
    exact = np.array([[0.9, 0.8, 0.8]], np.float32)
    assert recall_of(np.array([[0.9, 0.8, 0.8]], np.float32), exact) == 1.0
    assert recall_of(np.array([[0.9, 0.8, 0.5]], np.float32), exact) == pytest.approx(2 / 3)


def test_garbage_is_no_index() -> None:
    with pytest.raises(ProtocolError, match="segments/x is no faiss index"):
        from_bytes(b"garbage", 0, "segments/x")
