"""Hugging Face: a folder that `datasets.load_dataset` takes, with pictures and a dataset card.

Parquet with the `huggingface` footer that declares images, one file a shard, in row groups that the
viewer can page. A sample is a row, its persons are a list in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from sapiens_batch.export.base import (
    Exporter,
    ExportOptions,
    Finished,
    Labeled,
    Made,
    ShardToExport,
)
from sapiens_batch.export.dataset_card import dataset_card
from sapiens_batch.export.maps import class_mask, depth_mm, encode_png
from sapiens_batch.export.records import image_values, label_columns, person_values
from sapiens_batch.export.spool import Spool
from sapiens_batch.labelset import LabelSet
from sapiens_batch.records import ColumnField, Level

GROUP_ROWS: Final = 100
"""Rows per row group where rows hold pictures, as the Hub's viewer wants them."""

_IMAGE: pa.DataType = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_OWN = (
    ColumnField("key", "string"),
    ColumnField("shard_id", "string"),
    ColumnField("index", "int64"),
    ColumnField("status", "string"),
    ColumnField("height", "int32"),
    ColumnField("width", "int32"),
    ColumnField("content_sha256", "string"),
    ColumnField("num_persons", "int32"),
)


class HuggingFaceOptions(ExportOptions):
    """Options of `huggingface`."""

    masks: bool = Field(default=True, description="Add `seg` as an image of classes.")
    depth: bool = Field(default=True, description="Add `depth` as a 16-bit image in mm.")
    pictures: bool = Field(default=True, description="Add `image`.")
    split: str = Field(default="train", pattern=r"^\w+$", description="Name of the split.")
    licence: str = Field(
        default="other", description="Licence of the dataset for its card, an id of the Hub."
    )


class HuggingFaceExporter(Exporter[HuggingFaceOptions]):
    """`data/train-00000-of-00010.parquet` and `README.md`."""

    name = "huggingface"
    options_type = HuggingFaceOptions
    pictures = "default"

    def __init__(
        self, labels: LabelSet, options: HuggingFaceOptions, origin: Mapping[str, Any]
    ) -> None:
        super().__init__(labels, options, origin)
        self._num_shards = len(labels.commits)
        self._schema = self._make_schema()

    def shard(self, shard: ShardToExport) -> Iterator[Made]:
        """The Parquet file of a shard; none where no sample is chosen."""
        samples = iter(shard.samples)
        count = 0
        with Spool() as spool:
            with pq.ParquetWriter(spool.file, self._schema, compression="zstd") as writer:
                while rows := [self._row(sample) for sample in islice(samples, GROUP_ROWS)]:
                    writer.write_table(pa.Table.from_pylist(rows, self._schema))
                    count += len(rows)
            if count:
                name = f"{self.options.split}-{shard.number:05d}-of-{self._num_shards:05d}"
                yield Made(f"data/{name}.parquet", spool.view(), count)

    def finish(self, finished: Finished) -> Iterator[Made]:
        """The dataset card."""
        num_samples = size_bytes = 0
        for receipt in finished.receipts():
            num_samples += receipt.samples
            size_bytes += sum(stored.size_bytes for stored in receipt.objects)
        card = dataset_card(
            self.labels,
            self.origin,
            features=self._features(),
            split=self.options.split,
            licence=self.options.licence,
            num_samples=num_samples,
            size_bytes=size_bytes,
        )
        yield Made("README.md", card.encode())

    def _row(self, sample: Labeled) -> dict[str, Any]:
        row = _plain(image_values(self.labels, sample))
        row["persons"] = [_plain(person_values(self.labels, one)) for one in sample.labels.persons]
        if self.options.pictures and sample.picture is not None:
            path = f"{sample.name}.{sample.picture.suffix}"
            row["image"] = {"bytes": sample.picture.encoded, "path": path}
        if "seg" in self._schema.names:
            row["seg"] = _image(class_mask(sample.labels), f"{sample.name}.seg.png")
        if "depth" in self._schema.names:
            row["depth"] = _image(depth_mm(sample.labels), f"{sample.name}.depth.png")
        return row

    @property
    def _images(self) -> tuple[str, ...]:
        """Names of the columns that are images."""
        found = ["image"] if self.options.pictures else []
        if self.options.masks and "seg" in self.schemas:
            found.append("seg")
        if self.options.depth and "pointmap" in self.schemas:
            found.append("depth")
        return tuple(found)

    @property
    def _columns(self) -> tuple[ColumnField, ...]:
        extra = (ColumnField(name, "string") for name in self.labels.job.extra_columns)
        return (*_OWN, *extra, *label_columns(self.labels, Level.IMAGE))

    def _make_schema(self) -> pa.Schema:
        persons = pa.struct(
            [(one.name, _type(one)) for one in label_columns(self.labels, Level.PERSON)]
        )
        fields = [
            *((name, _IMAGE) for name in self._images),
            *((one.name, _type(one)) for one in self._columns),
            ("persons", pa.list_(persons)),
        ]
        document = json.dumps({"info": {"features": self._features()}})
        notes = json.dumps(dict(self.origin), ensure_ascii=False)
        return pa.schema(fields, {"huggingface": document, "sapiens_batch": notes})

    def _features(self) -> dict[str, Any]:
        persons = {one.name: _feature(one) for one in label_columns(self.labels, Level.PERSON)}
        return {
            **{name: {"_type": "Image"} for name in self._images},
            **{one.name: _feature(one) for one in self._columns},
            "persons": [persons],
        }


def _type(column: ColumnField) -> pa.DataType:
    kind: pa.DataType = (
        pa.string() if column.dtype == "string" else pa.from_numpy_dtype(np.dtype(column.dtype))
    )
    for size in reversed(column.shape):
        kind = pa.list_(kind, size)
    return kind


def _feature(column: ColumnField) -> dict[str, Any]:
    feature: dict[str, Any] = {"dtype": column.dtype, "_type": "Value"}
    for size in reversed(column.shape):
        # `Sequence` is what every version of the library reads; newer ones call it `List`
        feature = {"feature": feature, "length": size, "_type": "Sequence"}
    return feature


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    }


def _image(values: Any, path: str) -> dict[str, Any] | None:
    return None if values is None else {"bytes": encode_png(values), "path": path}
