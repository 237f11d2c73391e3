"""Groups of near-duplicates: samples whose embeddings are at least so similar.

Groups are the connected components of the graph that links each sample to its neighbours at or
above a stated similarity. Which sample of a group is kept depends on the group alone.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from sapiens_batch.records import Array
from sapiens_batch.search import SearchIndex

NUM_LINKS: Final = 32
"""Neighbours that a sample is linked to at most. A picture that a corpus holds ten thousand times
has a hundred million pairs; its samples still hang together by their nearest links."""

_QUERY_ROWS: Final = 4096


def links(index: SearchIndex, similarity: float) -> Array:
    """(L, 2) int64: pairs of rows of the index that are at least so similar.

    Where the index is approximate, its recall is that of the links.
    """
    found = [np.empty((0, 2), np.int64)]
    for start, segment in index.vectors():
        for first in range(0, len(segment.values), _QUERY_ROWS):
            queries = segment.values[first : first + _QUERY_ROWS]
            near, rows = index.neighbours(queries, NUM_LINKS + 1)
            # a picture compared with itself differs from 1 in the last digit
            query, rank = np.nonzero(near >= similarity - 1e-6)
            pairs = np.stack([query + start + first, rows[query, rank]], axis=1)
            found.append(pairs[pairs[:, 0] != pairs[:, 1]])
    return np.concatenate(found)


def components(num_rows: int, pairs: Array) -> Array:
    """(num_rows,) the smallest row that each row is connected with, by (L, 2) pairs of rows."""
    label = np.arange(num_rows)
    first, second = pairs[:, 0], pairs[:, 1]
    while True:
        before = label.copy()
        least = np.minimum(label[first], label[second])
        np.minimum.at(label, label[first], least)
        np.minimum.at(label, label[second], least)
        # jump to the end of the chain, so that long chains take few rounds
        while not np.array_equal(label, label[label]):
            label = label[label]
        if np.array_equal(label, before):
            return label


def representatives(groups: Array, candidates: pa.Table) -> tuple[Array, Array]:
    """Which candidate of each group to keep: the largest picture, then the first in stored order.

    Args:
        groups: (n,) group of each candidate; -1 where it has no embedding and so no duplicates.
        candidates: n rows with `num_pixels`, in stored order.

    Returns:
        Sorted positions of the kept candidates, and for each the size of its group.
    """
    num_pixels = np.nan_to_num(candidates["num_pixels"].to_numpy(zero_copy_only=False))
    alone = groups < 0
    unique = np.where(alone, groups.max(initial=0) + 1 + np.arange(len(groups)), groups)
    order = np.lexsort((np.arange(len(groups)), -num_pixels, unique))
    _, starts, sizes = np.unique(unique[order], return_index=True, return_counts=True)
    kept = order[starts]
    position = np.argsort(kept)
    return kept[position], sizes[position]
