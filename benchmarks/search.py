"""How fast an index of embeddings is built and searched, and what share of neighbours it finds.

Vectors are made up: uniform ones have no structure at all, which is the hardest case; clustered
ones are like the embeddings of a corpus with kinds of picture in it. Queries are not in the index.
Recall is against exact search of the same vectors, exact rates are of the same machine and batch.

    python benchmarks/search.py --vectors 100000 --dimension 64
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass

import numpy as np

from sapiens_batch.records import Array
from sapiens_batch.search.build import TARGET_RECALL
from sapiens_batch.search.cells import (
    NUM_NEIGHBOURS,
    build_cells,
    faiss_module,
    from_bytes,
    nearest,
    to_bytes,
)

NUM_CENTRES = 1000
SPREAD = 0.35


@dataclass(frozen=True, slots=True)
class Measured:
    """One kind of vectors.

    Attributes:
        kind: `clustered` or `uniform`.
        build_s: Seconds to build and tune.
        vectors_per_s: Vectors over build_s.
        size_bytes: Size of the stored index.
        num_cells: Cells of the index.
        probes: Cells that a query looks into.
        recall: Share of the ten nearest neighbours that queries found, by row.
        queries_per_s: Queries a second.
        exact_queries_per_s: The same by comparing with every vector.
    """

    kind: str
    build_s: float
    vectors_per_s: float
    size_bytes: int
    num_cells: int
    probes: int
    recall: float
    queries_per_s: float
    exact_queries_per_s: float


def made_up(kind: str, num: int, dimension: int, seed: int) -> Array:
    """(num, dimension) float32 unit vectors."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(num, dimension))
    if kind == "clustered":
        centres = np.random.default_rng(1).normal(size=(NUM_CENTRES, dimension))
        vectors = centres[rng.integers(NUM_CENTRES, size=num)] + SPREAD * vectors
    unit: Array = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit


def measure(kind: str, num: int, dimension: int, num_queries: int, target: float) -> Measured:
    """Build, store, load and search one index."""
    vectors = made_up(kind, num, dimension, seed=2)
    queries = made_up(kind, num_queries, dimension, seed=3)
    started = time.perf_counter()
    cells = build_cells(vectors, target_recall=target)
    build_s = time.perf_counter() - started
    data = to_bytes(cells)
    index = from_bytes(data, cells.probes, "index")
    started = time.perf_counter()
    _, found = nearest(index, queries, NUM_NEIGHBOURS)
    search_s = time.perf_counter() - started
    exact_index = faiss_module().IndexFlatIP(dimension)
    exact_index.add(vectors)
    started = time.perf_counter()
    _, exact = nearest(exact_index, queries, NUM_NEIGHBOURS)
    exact_s = time.perf_counter() - started
    shared = [len(set(a) & set(b)) for a, b in zip(found.tolist(), exact.tolist(), strict=True)]
    return Measured(
        kind=kind,
        build_s=build_s,
        vectors_per_s=num / build_s,
        size_bytes=len(data),
        num_cells=cells.num_cells,
        probes=cells.probes,
        recall=sum(shared) / (num_queries * NUM_NEIGHBOURS),
        queries_per_s=num_queries / search_s,
        exact_queries_per_s=num_queries / exact_s,
    )


def main() -> int:
    """Measure both kinds and print; 1 where a recall is below the promised 0.95."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--vectors", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=64)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--target-recall", type=float, default=TARGET_RECALL)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    faiss_module().omp_set_num_threads(options.threads)
    results = [
        measure(kind, options.vectors, options.dimension, options.queries, options.target_recall)
        for kind in ("clustered", "uniform")
    ]
    for one in results:
        if options.json:
            print(json.dumps(asdict(one)))
            continue
        print(
            f"{one.kind:>9}: built in {one.build_s:.1f} s ({one.vectors_per_s:,.0f} vectors/s, "
            f"{one.size_bytes / 1e6:.0f} MB), {one.probes} of {one.num_cells} cells, "
            f"recall@10 {one.recall:.3f}, {one.queries_per_s:,.0f} queries/s "
            f"(exact: {one.exact_queries_per_s:,.0f})"
        )
    return 0 if all(one.recall >= 0.95 for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
