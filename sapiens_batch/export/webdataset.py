"""WebDataset tars for training loaders: each sample's photo with its labels beside it.

One tar a shard of the job. Members of a sample are `.jpg` (or what the photo is), `.json` with all
table columns, `.keypoints.npy`, `.embedding.npy`, `.seg.png` and `.depth.npy`. Depth is no PNG
here, because the loaders' image decoders cut 16 bits to 8 without a word.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from pydantic import Field

from sapiens_batch.export.base import Exporter, ExportOptions, Labeled, Made, ShardToExport
from sapiens_batch.export.maps import class_mask, depth_mm, encode_npy, encode_png
from sapiens_batch.export.records import as_json, values
from sapiens_batch.export.spool import Spool
from sapiens_batch.records import Array, Level

# numbers that are arrays have a member of their own
_AS_ARRAYS = ("embedding", "embedding_raw", "keypoints", "keypoint_scores")


class WebDatasetOptions(ExportOptions):
    """Options of `webdataset`."""

    masks: bool = Field(default=True, description="Add `.seg.png`, grey levels are classes.")
    depth: bool = Field(
        default=False,
        description="Add `.depth.npy`, uint16 in mm, 0 is unknown: 2 bytes a source pixel.",
    )
    normals: bool = Field(
        default=False, description="Add `.normal.npy`, (3, h, w) float16 on the model's frame."
    )
    pictures: bool = Field(default=True, description="Add the photos.")


class WebDatasetExporter(Exporter[WebDatasetOptions]):
    """`000000.tar`, `000001.tar` and so on."""

    name = "webdataset"
    options_type = WebDatasetOptions
    pictures = "default"

    def shard(self, shard: ShardToExport) -> Iterator[Made]:
        """The tar of a shard, also where it has no sample: numbers have no gaps."""
        count = 0
        with Spool() as spool:
            with tarfile.open(fileobj=spool.file, mode="w", format=tarfile.PAX_FORMAT) as tar:
                for sample in shard.samples:
                    for suffix, data in self._members(sample):
                        # the same bytes on every run: no time, no owner
                        member = tarfile.TarInfo(f"{sample.name}.{suffix}")
                        member.size = len(data)
                        tar.addfile(member, io.BytesIO(data))
                    count += 1
            yield Made(f"{shard.number:06d}.tar", spool.view(), count)

    def _members(self, sample: Labeled) -> Iterator[tuple[str, bytes]]:
        if sample.picture is not None:
            yield sample.picture.suffix, sample.picture.encoded
        yield "json", json.dumps(self._document(sample), ensure_ascii=False).encode()
        if sample.labels.row.get("embedding") is not None:
            yield "embedding.npy", encode_npy(sample.labels.row["embedding"])
        if "pose" in self.schemas:
            yield "keypoints.npy", encode_npy(self._keypoints(sample))
        mask = class_mask(sample.labels) if self.options.masks else None
        if mask is not None:
            yield "seg.png", encode_png(mask)
        depth = depth_mm(sample.labels) if self.options.depth else None
        if depth is not None:
            yield "depth.npy", encode_npy(depth)
        if self.options.normals and "normal" in self.schemas:
            of_persons = self.schemas["normal"].level is Level.PERSON
            normals = (sample.labels.to_source if of_persons else sample.labels.array)("normal")
            if normals is not None:
                yield "normal.npy", encode_npy(normals)

    def _document(self, sample: Labeled) -> dict[str, Any]:
        document = {
            **self._values(Level.IMAGE, sample.labels.row),
            "persons": [self._values(Level.PERSON, one) for one in sample.labels.persons],
            "spec_digest": self.origin["spec_digest"],
        }
        if self.origin["warning"]:
            document["warning"] = self.origin["warning"]
        labels: dict[str, Any] = as_json(document)
        return labels

    def _values(self, level: Level, row: Mapping[str, Any]) -> dict[str, Any]:
        found = values(self.labels, level, row)
        return {name: value for name, value in found.items() if name not in _AS_ARRAYS}

    def _keypoints(self, sample: Labeled) -> Array:
        """(P, K, 3) float32: x, y, score of all persons; NaN where missing."""
        pose = self.schemas["pose"]
        count = next(column.shape[0] for column in pose.columns if column.name == "keypoints")
        found = np.full((len(sample.labels.persons), count, 3), np.nan, np.float32)
        for number, person in enumerate(sample.labels.persons):
            if person["keypoints"] is not None:
                found[number, :, :2] = person["keypoints"]
                found[number, :, 2] = person["keypoint_scores"]
        return found
