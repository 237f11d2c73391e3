"""Hugging Face: a folder that `datasets.load_dataset` takes, with pictures and a dataset card.

Parquet with the `huggingface` footer that declares images, one file a shard, in row groups that the
viewer can page. A sample is a row, its persons are a list in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pydantic import Field

from sapiens_batch.export.base import Exporter, ExportOptions, Labeled, Made, ShardToExport
from sapiens_batch.export.documents import Finished
from sapiens_batch.export.maps import class_mask, depth_mm, encode_png
from sapiens_batch.export.provenance import summary
from sapiens_batch.export.records import as_lists, columns, values
from sapiens_batch.export.spool import Spool
from sapiens_batch.records import Array, ColumnField, Level
from sapiens_batch.sinks.parquet import column_type

GROUP_ROWS: Final = 100
"""Rows per row group where rows hold pictures, as the Hub's viewer wants them."""

_IMAGE: pa.DataType = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_CATEGORIES = {
    "pose": "keypoint-detection",
    "seg": "image-segmentation",
    "pointmap": "depth-estimation",
    "embedding": "image-feature-extraction",
}
_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"),
          (10**7, "1M<n<10M"), (10**8, "10M<n<100M"), (10**9, "100M<n<1B"))  # fmt: skip


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

    def prepare(self) -> None:
        """Decide the columns."""
        self._columns = {level: columns(self.labels, level) for level in Level}
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
                num_shards = len(self.labels.commits)
                name = f"{self.options.split}-{shard.number:05d}-of-{num_shards:05d}"
                yield Made(f"data/{name}.parquet", spool.view(), count)

    def finish(self, finished: Finished) -> Iterator[Made]:
        """The dataset card."""
        num_samples = size_bytes = 0
        for receipt in finished.receipts():
            num_samples += receipt.samples
            size_bytes += sum(stored.size_bytes for stored in receipt.objects)
        yield Made("README.md", self._card(num_samples, size_bytes).encode())

    def _card(self, num_samples: int, size_bytes: int) -> str:
        """What is in the dataset, from which models, on what terms; the Hub reads the YAML."""
        split, origin = self.options.split, self.origin
        head = {
            "pretty_name": origin["job"],
            "license": self.options.licence,
            "task_categories": [_CATEGORIES[one] for one in self.schemas if one in _CATEGORIES],
            "size_categories": [
                next((name for limit, name in _SIZES if num_samples < limit), "n>1T")
            ],
            "tags": ["sapiens2", "human", "pseudo-labels"],
            "configs": [
                {"config_name": "default",
                 "data_files": [{"split": split, "path": f"data/{split}-*.parquet"}]}
            ],
        }  # fmt: skip
        front = yaml.safe_dump(head, sort_keys=False, allow_unicode=True)
        return "\n".join(
            [
                f"---\n{front}---\n",
                f"# {origin['job']}\n",
                *([f"> **Warning:** {origin['warning']}.\n"] if origin["warning"] else []),
                f"{summary(origin)}\n",
                f"{num_samples} samples, {size_bytes / 1e6:.1f} MB. Labels were made by models and "
                "were not checked by people.\n",
                "## Models\n",
                *_models(origin),
                "\n## Columns\n",
                *(f"- `{name}`" for name in self._images),
                *(_described(one.name, one) for one in self._columns[Level.IMAGE]),
                "- `persons`",
                *(_described(f"persons[].{one.name}", one) for one in self._columns[Level.PERSON]),
                "\n## Conventions\n",
                *(f"- {name}: {text}" for name, text in origin["conventions"].items()),
                "- depth: millimetres along the optical axis, 0 where unknown",
                "- seg: pixel values are classes, 255 where there is no label",
                "\n## Licences\n",
                "The photos keep the licences of their source. The models' licences:\n",
                *(f"- {model}: {text}" for model, text in origin["licences"].items()),
                "",
            ]
        )

    def _row(self, sample: Labeled) -> dict[str, Any]:
        row = as_lists(values(self.labels, Level.IMAGE, sample.labels.row))
        row["persons"] = [
            as_lists(values(self.labels, Level.PERSON, one)) for one in sample.labels.persons
        ]
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

    def _make_schema(self) -> pa.Schema:
        persons = pa.struct([(one.name, column_type(one)) for one in self._columns[Level.PERSON]])
        fields = [
            *((name, _IMAGE) for name in self._images),
            *((one.name, column_type(one)) for one in self._columns[Level.IMAGE]),
            ("persons", pa.list_(persons)),
        ]
        document = json.dumps({"info": {"features": self._features()}})
        notes = json.dumps(dict(self.origin), ensure_ascii=False)
        return pa.schema(fields, {"huggingface": document, "sapiens_batch": notes})

    def _features(self) -> dict[str, Any]:
        persons = {one.name: _feature(one) for one in self._columns[Level.PERSON]}
        return {
            **{name: {"_type": "Image"} for name in self._images},
            **{one.name: _feature(one) for one in self._columns[Level.IMAGE]},
            "persons": [persons],
        }


def _feature(column: ColumnField) -> dict[str, Any]:
    feature: dict[str, Any] = {"dtype": column.dtype, "_type": "Value"}
    for size in reversed(column.shape):
        # `Sequence` is what every version of the library reads; newer ones call it `List`
        feature = {"feature": feature, "length": size, "_type": "Sequence"}
    return feature


def _image(pixels: Array | None, path: str) -> dict[str, Any] | None:
    return None if pixels is None else {"bytes": encode_png(pixels), "path": path}


def _described(name: str, column: ColumnField) -> str:
    return f"- `{name}`: {column.description}" if column.description else f"- `{name}`"


def _models(origin: Mapping[str, Any]) -> list[str]:
    lines = ["| task | model | revision | weights |", "|---|---|---|---|"]
    for task, one in origin["tasks"].items():
        weights = str(one.get("weights_sha256") or "")[:12]
        lines.append(f"| {task} | {one.get('model')} | {one.get('revision') or ''} | {weights} |")
    return lines
