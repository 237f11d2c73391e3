"""PLY point clouds: metric points of each sample, with the photo's colours, without background.

Binary little-endian, as every viewer reads it. Points are those of the stored frame, in the
camera's frame: x right, y down, z forward, in metres. Points that were labeled person by person
stay apart: each person was seen by a camera of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import Field

from sapiens_batch.export.base import Exporter, ExportOptions, Labeled, Made, ShardToExport
from sapiens_batch.export.maps import class_mask, is_foreground
from sapiens_batch.labelset.sample import Row, frame_affine
from sapiens_batch.records import Array, Level

GREY = (180, 180, 180)
"""Colour of points where no photo is taken along."""


class PlyOptions(ExportOptions):
    """Options of `ply`."""

    region: Literal["foreground", "all"] = Field(
        default="foreground", description="Points on persons as `seg` has them, or all points."
    )
    stride: int = Field(default=1, ge=1, description="Take every so many rows and columns.")
    pictures: bool = Field(default=True, description="Take colours from the photos.")


class PlyExporter(Exporter[PlyOptions]):
    """`points/`, one file a sample, or one a person."""

    name = "ply"
    options_type = PlyOptions
    pictures = "default"
    needs = ("pointmap",)

    def shard(self, shard: ShardToExport) -> Iterator[Made]:
        """The clouds of a shard; samples without a point have none."""
        of_persons = self.schemas["pointmap"].level is Level.PERSON
        for sample in shard.samples:
            name = f"points/{shard.number:06d}/{sample.name}"
            owners = sample.labels.persons if of_persons else (sample.labels.row,)
            labeled = [owner for owner in owners if owner["pointmap_row"] is not None]
            whole = self._source_maps(sample) if labeled else (None, None)
            for owner in labeled:
                person = owner.get("person")
                cloud = self._cloud(sample, owner, person, *whole)
                if cloud is not None and len(cloud):
                    key = f"{name}.ply" if person is None else f"{name}.{person}.ply"
                    yield Made(key, _encode(cloud, self.origin["warning"]), len(cloud))

    def _source_maps(self, sample: Labeled) -> tuple[Array | None, Array | None]:
        """(height, width) bool foreground and (height, width, 3) pixels, where they count."""
        mask = class_mask(sample.labels) if self.options.region == "foreground" else None
        inside = None if mask is None else is_foreground(mask, self.schemas["seg"])
        return inside, None if sample.picture is None else sample.picture.pixels()

    def _cloud(
        self,
        sample: Labeled,
        owner: Row,
        person: int | None,
        inside: Array | None,
        pixels: Array | None,
    ) -> Array | None:
        """(n,) structured x, y, z, red, green, blue."""
        points = sample.labels.array("pointmap", person)
        if points is None:
            return None
        stride = self.options.stride
        points = points[:, ::stride, ::stride].astype(np.float32)
        rows, columns = self._source_pixels(sample.size, owner, points.shape[-2:])
        keep = np.isfinite(points).all(axis=0)
        if inside is not None:
            keep &= inside[rows[:, None], columns[None, :]]
        colours = np.full((*keep.shape, 3), GREY, np.uint8)
        if pixels is not None:
            colours = pixels[rows[:, None], columns[None, :]]
        cloud = np.empty(int(keep.sum()), _VERTEX)
        for axis, name in enumerate("xyz"):
            cloud[name] = points[axis][keep]
        for channel, name in enumerate(("red", "green", "blue")):
            cloud[name] = colours[keep, channel]
        return cloud

    def _source_pixels(
        self, size: tuple[int, int], owner: Row, shape: tuple[int, ...]
    ) -> tuple[Array, Array]:
        """Rows and columns of the source that the frame's rows and columns lie on."""
        affine = frame_affine(owner, "pointmap")
        height, width = size
        frame_rows, frame_columns = (np.arange(count) * self.options.stride for count in shape)
        rows = np.rint(affine.scale_y * frame_rows + affine.offset_y).astype(int)
        columns = np.rint(affine.scale_x * frame_columns + affine.offset_x).astype(int)
        return rows.clip(0, height - 1), columns.clip(0, width - 1)


_VERTEX = np.dtype(
    [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("red", "u1"), ("green", "u1"), ("blue", "u1")]
)


def _encode(cloud: Array, warning: str) -> bytes:
    lines = [
        "ply",
        "format binary_little_endian 1.0",
        "comment metres; x right, y down, z forward",
        *([f"comment {warning}"] if warning else []),
        f"element vertex {len(cloud)}",
        *(f"property float {name}" for name in "xyz"),
        *(f"property uchar {name}" for name in ("red", "green", "blue")),
        "end_header",
    ]
    return ("\n".join(lines) + "\n").encode("ascii") + cloud.tobytes()
