"""Nearest neighbours among unit vectors: exact for few, by cells (an inverted file) for many.

The only module that knows faiss. An approximate index is tuned when it is built: a query looks into
as many cells as it takes to find the wanted share of neighbours, in the worst case into all. Cells
are used rather than a graph because they are built many times faster, the same on every run, and
get any recall at the price of time.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from sapiens_batch.errors import DependencyError, ProtocolError
from sapiens_batch.records import Array
from sapiens_batch.search.documents import REMEDY

EXACT_ROWS: Final = 20_000
"""Up to so many vectors an exact query takes a few milliseconds, and there is nothing to tune."""

NUM_NEIGHBOURS: Final = 10
_NUM_PROBE_QUERIES: Final = 256
_SEED: Final = 20_260_101


class Cells(NamedTuple):
    """A faiss index with what is known of it.

    Attributes:
        index: The faiss index; inner products of unit vectors are cosine similarities.
        num_cells: Cells, 0 where the index is exact.
        probes: Cells that a query looks into.
        recall: Measured recall@10 with so many probes.
    """

    index: Any
    num_cells: int = 0
    probes: int = 0
    recall: float = 1.0


def faiss_module() -> Any:
    """The faiss package.

    Raises:
        DependencyError: It is not installed.
    """
    try:
        import faiss
    except ImportError as error:
        raise DependencyError(
            f"searching embeddings needs faiss: pip install 'sapiens-batch[search]' ({error})"
        ) from error
    return faiss


def build_cells(vectors: Array, *, target_recall: float, exact_rows: int = EXACT_ROWS) -> Cells:
    """Index vectors.

    Args:
        vectors: (n, C) float32 of unit length.
        target_recall: Share of the ten nearest neighbours that an approximate query is to find.
        exact_rows: Up to so many vectors the index is exact.

    Raises:
        DependencyError: faiss is not installed.
    """
    faiss = faiss_module()
    exact = faiss.IndexFlatIP(vectors.shape[1])
    if len(vectors) <= exact_rows:
        exact.add(vectors)
        return Cells(exact)
    # 4 sqrt(n) cells balance finding the cells and looking into them
    num_cells = int(4 * np.sqrt(len(vectors)))
    index = faiss.IndexIVFFlat(exact, vectors.shape[1], num_cells, faiss.METRIC_INNER_PRODUCT)
    index.cp.seed = _SEED
    index.cp.min_points_per_centroid = 1  # else faiss prints a warning, for small corpora only
    index.cp.max_points_per_centroid = 64  # more does not move the centroids
    index.train(vectors)
    index.add(vectors)
    probes, recall = _tune(index, vectors, target_recall)
    return Cells(index, num_cells, probes, recall)


def to_bytes(cells: Cells) -> bytes:
    """The index as an object."""
    data: bytes = faiss_module().serialize_index(cells.index).tobytes()
    return data


def from_bytes(data: bytes, probes: int, key: str) -> Any:
    """The inverse of `to_bytes`, set to look into so many cells.

    Raises:
        ProtocolError: The bytes are no index.
        DependencyError: faiss is not installed.
    """
    faiss = faiss_module()
    try:
        index = faiss.deserialize_index(np.frombuffer(data, np.uint8))
    except RuntimeError as error:
        raise ProtocolError(f"{key} is no faiss index; {REMEDY}") from error
    if probes:
        index.nprobe = probes
        index.make_direct_map()
    return index


def nearest(index: Any, queries: Array, num: int) -> tuple[Array, Array]:
    """The most similar vectors of each query, best first.

    Args:
        index: A faiss index.
        queries: (q, C) float32 of unit length.
        num: How many.

    Returns:
        (q, num) similarities and (q, num) row numbers; -inf and -1 where there are fewer.
    """
    if not index.ntotal or not len(queries):
        shape = (len(queries), num)
        return np.full(shape, -np.inf, np.float32), np.full(shape, -1, np.int64)
    similarities, rows = index.search(np.ascontiguousarray(queries), num)
    similarities[rows < 0] = -np.inf
    return similarities, rows


def stored_vectors(index: Any) -> Array:
    """(n, C) float32, the vectors of an index in the order they were added."""
    if not index.ntotal:
        return np.empty((0, index.d), np.float32)
    vectors: Array = index.reconstruct_n(0, index.ntotal)
    return vectors


def recall_of(found: Array, exact: Array) -> float:
    """Share of the exact neighbours that were found, by similarity, so that ties count as found.

    Args:
        found: (q, k) similarities of an approximate query, best first.
        exact: (q, k) similarities of the exact neighbours.
    """
    worst = exact[:, -1:] - 1e-5
    return float(np.mean(np.minimum((found >= worst).sum(axis=1), exact.shape[1]) / exact.shape[1]))


def _tune(index: Any, vectors: Array, target_recall: float) -> tuple[int, float]:
    """(probes, recall): the fewest probes, in steps of 2/5, that reach the target on a sample."""
    faiss = faiss_module()
    rng = np.random.default_rng(_SEED)
    num_queries = min(_NUM_PROBE_QUERIES, len(vectors))
    picked = np.sort(rng.choice(len(vectors), num_queries, replace=False))
    queries = vectors[picked]
    # a vector of the index finds itself for nothing: the next ones are the test
    num = min(NUM_NEIGHBOURS + 1, len(vectors))
    exact, _ = faiss.knn(queries, vectors, num, metric=faiss.METRIC_INNER_PRODUCT)
    probes, recall = 1, 0.0
    while True:
        index.nprobe = probes
        found, _ = nearest(index, queries, num)
        recall = recall_of(found[:, 1:], exact[:, 1:])
        if recall >= target_recall or probes == index.nlist:
            return probes, recall
        probes = min(max(probes + 1, probes * 7 // 5), index.nlist)
