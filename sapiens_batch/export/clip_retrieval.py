"""clip-retrieval's layout of embeddings: numbered .npy and Parquet files in the same order.

`clip-retrieval index`, autofaiss and embedding readers take the folder as it is. Embeddings of
persons come with the person's number. Building an index is left to them and to `search`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from sapiens_batch.export.base import Exporter, ExportOptions, Labeled, Made, ShardToExport
from sapiens_batch.export.maps import encode_npy
from sapiens_batch.records import Array, Level
from sapiens_batch.sinks import parquet


class ClipRetrievalOptions(ExportOptions):
    """Options of `clip-retrieval`."""

    dtype: Literal["float16", "float32"] = Field(
        default="float16", description="Type of the vectors."
    )


class ClipRetrievalExporter(Exporter[ClipRetrievalOptions]):
    """`img_emb/img_emb_0000.npy` and `metadata/metadata_0000.parquet`, one of each a shard."""

    name = "clip-retrieval"
    options_type = ClipRetrievalOptions
    needs = ("embedding",)

    def prepare(self) -> None:
        """Decide whose embeddings there are, and how files are numbered."""
        self._of_persons = self.schemas["embedding"].level is Level.PERSON
        # clip-retrieval pairs files by name and sorts names: all must have the same length
        self._digits = max(4, len(str(max(0, len(self.labels.commits) - 1))))

    def shard(self, shard: ShardToExport) -> Iterator[Made]:
        """Vectors and rows of a shard; nothing where it has no vector."""
        vectors: list[Array] = []
        rows: list[dict[str, Any]] = []
        for sample in shard.samples:
            for owner in sample.labels.persons if self._of_persons else (sample.labels.row,):
                vector = owner["embedding"]
                if vector is not None and np.isfinite(vector).all():
                    vectors.append(vector.astype(self.options.dtype))
                    rows.append({**self._row(sample), "person": owner.get("person")})
        if not rows:
            return
        number = f"{shard.number:0{self._digits}d}"
        yield Made(f"img_emb/img_emb_{number}.npy", encode_npy(np.stack(vectors)), len(rows))
        table = pa.Table.from_pylist(rows, schema=self._schema())
        yield Made(f"metadata/metadata_{number}.parquet", parquet.encode(table), len(rows))

    def _schema(self) -> pa.Schema:
        text = ("image_path", "key", "shard_id", *self.labels.job.extra_columns)
        fields: list[pa.Field[Any]] = [pa.field(name, pa.string()) for name in text]
        fields.append(pa.field("index", pa.int64()))
        if self._of_persons:
            fields.append(pa.field("person", pa.int32()))
        return pa.schema(fields)

    def _row(self, sample: Labeled) -> dict[str, Any]:
        extra = {name: sample.labels.row[name] for name in self.labels.job.extra_columns}
        return {**extra, "image_path": sample.labels.row["key"], **sample.identity}
