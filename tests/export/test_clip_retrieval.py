"""The clip-retrieval layout, from which an index is built and searched."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sapiens_batch.labelset import LabelSet
from tests.conformance.exporter_contract import ExporterContract
from tests.export.conftest import ExportTo


class TestClipRetrievalContract(ExporterContract):
    format_name = "clip-retrieval"
    changed: ClassVar[dict[str, Any]] = {"dtype": "float32"}


def test_an_index_over_the_vectors_finds_the_keys_of_the_metadata(
    export_to: ExportTo, tmp_path: Path, labels: LabelSet
) -> None:
    import faiss

    folder = export_to(tmp_path, "clip-retrieval")
    vectors = [np.load(path) for path in sorted((folder / "img_emb").glob("img_emb_*.npy"))]
    tables = [pq.read_table(path) for path in sorted((folder / "metadata").glob("*.parquet"))]
    assert [len(one) for one in vectors] == [one.num_rows for one in tables]
    assert {one.dtype for one in vectors} == {np.dtype(np.float16)}
    keys = pa.concat_tables(tables)["key"].to_pylist()
    index = faiss.IndexFlatIP(64)
    index.add(np.concatenate(vectors).astype(np.float32))
    for key in ("sample-000000", "sample-000020", "sample-000025"):
        vector = labels.sample(key).row["embedding"]
        _, found = index.search(vector[None], 1)
        assert keys[found[0, 0]] == key


def test_near_duplicates_are_each_other_s_neighbours(export_to: ExportTo, tmp_path: Path) -> None:
    import faiss

    folder = export_to(tmp_path, "clip-retrieval", dtype="float32")
    paths = sorted((folder / "img_emb").glob("*.npy"))
    vectors = np.concatenate([np.load(path) for path in paths])
    tables = [pq.read_table(path) for path in sorted((folder / "metadata").glob("*.parquet"))]
    keys = pa.concat_tables(tables)["image_path"].to_pylist()
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    _, found = index.search(vectors[keys.index("sample-000024")][None], 2)
    assert {keys[place] for place in found[0]} == {"sample-000023", "sample-000024"}
