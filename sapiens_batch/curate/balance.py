"""An even sample over clusters of embeddings.

Clusters are k-means cells of the unit vectors. Clusters give in turn, one sample each, until the
sample is full; a cluster that has no more is passed over. The same vectors and seed give the same
sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from sapiens_batch.errors import SpecError
from sapiens_batch.records import Array
from sapiens_batch.search.cells import faiss_module

_POINTS_PER_CLUSTER: Final = 256
_ROUNDS: Final = 25


def clusters(batches: Iterable[Array], num_vectors: int, num_clusters: int, seed: int) -> Array:
    """(n,) the cluster of each vector.

    Args:
        batches: (m, C) float32 unit vectors, n in all; walked over twice.
        num_vectors: n.
        num_clusters: Number of clusters.
        seed: Decides the first centroids and which vectors they are trained on.

    Raises:
        SpecError: There are fewer vectors than clusters.
        DependencyError: faiss is not installed.
    """
    if num_vectors < num_clusters:
        raise SpecError(
            f"balance.clusters: {num_clusters}, but only {num_vectors} samples with an embedding "
            "are left; ask for fewer clusters"
        )
    faiss = faiss_module()
    rng = np.random.default_rng(seed)
    num_points = min(num_vectors, _POINTS_PER_CLUSTER * num_clusters)
    picked = np.sort(rng.choice(num_vectors, num_points, replace=False))
    points = np.concatenate(list(_picked(batches, picked)))
    means = faiss.Kmeans(
        points.shape[1], num_clusters, niter=_ROUNDS, seed=seed & 0x7FFFFFFF, spherical=True,
        # first centroids that are far apart: random ones put two into one kind of picture
        init_method=faiss.ClusteringInitMethod_KMEANS_PLUS_PLUS,
        min_points_per_centroid=1, max_points_per_centroid=_POINTS_PER_CLUSTER,
    )  # fmt: skip
    means.train(points)
    return np.concatenate([means.index.search(batch, 1)[1][:, 0] for batch in batches])


def balanced(cluster_of: Array, num: int, seed: int) -> Array:
    """Sorted positions of an even sample.

    Args:
        cluster_of: (n,) cluster of each candidate.
        num: Size of the sample; all candidates where there are fewer.
        seed: Decides which samples of a cluster are taken.
    """
    shuffled = np.random.default_rng(seed).permutation(len(cluster_of))
    by_cluster = shuffled[np.argsort(cluster_of[shuffled], kind="stable")]
    own = cluster_of[by_cluster]
    starts = np.flatnonzero(np.diff(own, prepend=-1))
    turn = np.arange(len(own)) - np.repeat(starts, np.diff(starts, append=len(own)))
    taken = by_cluster[np.lexsort((own, turn))[:num]]
    return np.sort(taken)


def _picked(batches: Iterable[Array], positions: Array) -> Iterator[Array]:
    start = 0
    for batch in batches:
        inside = (positions >= start) & (positions < start + len(batch))
        yield batch[positions[inside] - start]
        start += len(batch)
