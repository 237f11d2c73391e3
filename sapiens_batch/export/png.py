"""PNG files: part masks in the vocabulary's colours, and depth as 16-bit millimetres.

Maps are in source pixels, upright. A Parquet index a shard says which files belong to which sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import Field

from sapiens_batch.export.base import Exporter, ExportOptions, Labeled, Made, ShardToExport
from sapiens_batch.export.maps import class_mask, depth_mm, encode_png
from sapiens_batch.records import Array
from sapiens_batch.sinks import parquet

_TEXT: tuple[str, ...] = ("key", "shard_id", "mask", "depth", "normal")
_FIELDS: list[pa.Field[Any]] = [pa.field(name, pa.string()) for name in _TEXT]
_INDEX = pa.schema([*_FIELDS, pa.field("index", pa.int64())])


class PngOptions(ExportOptions):
    """Options of `png`."""

    masks: bool = Field(default=True, description="Write `masks/`; palette images, index = class.")
    depth: bool = Field(default=True, description="Write `depth/`; 16 bit, mm, 0 is unknown.")
    normals: bool = Field(
        default=False, description="Write `normals/`; RGB = (normal + 1) / 2, black is unknown."
    )


class PngExporter(Exporter[PngOptions]):
    """`masks/`, `depth/` and `normals/`, one file a sample, and `index/`, one a shard."""

    name = "png"
    options_type = PngOptions
    needs = ("seg", "pointmap", "normal")

    def shard(self, shard: ShardToExport) -> Iterator[Made]:
        """The files of a shard, then their index."""
        rows: list[dict[str, Any]] = []
        for sample in shard.samples:
            row: dict[str, Any] = dict(sample.identity)
            for kind, folder, data in self._maps(sample):
                row[kind] = f"{folder}/{shard.number:06d}/{sample.name}.png"
                yield Made(row[kind], data)
            rows.append(row)
        if rows:
            data = parquet.encode(pa.Table.from_pylist(rows, _INDEX))
            yield Made(f"index/{shard.number:06d}.parquet", data, len(rows))

    def _maps(self, sample: Labeled) -> Iterator[tuple[str, str, bytes]]:
        mask = class_mask(sample.labels) if self.options.masks else None
        if mask is not None:
            yield "mask", "masks", encode_png(mask, self.schemas["seg"].metadata.get("palette_rgb"))
        depth = depth_mm(sample.labels) if self.options.depth else None
        if depth is not None:
            yield "depth", "depth", encode_png(depth)
        if self.options.normals and "normal" in self.schemas:
            normals = sample.labels.to_source("normal")
            if normals is not None:
                yield "normal", "normals", encode_png(_colours(normals))


def _colours(normals: Array) -> Array:
    """(height, width, 3) uint8 from (3, height, width) unit vectors."""
    known = np.isfinite(normals).all(axis=0)
    shares = np.where(known, (normals.astype(np.float32) + 1) / 2, 0)
    colours: Array = np.rint(np.clip(shares, 0, 1) * 255).astype(np.uint8)
    return np.ascontiguousarray(np.moveaxis(colours, 0, -1))
