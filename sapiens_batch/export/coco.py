"""COCO: keypoints as annotations and as results, person instances, and panoptic part masks.

The photos are not needed, only named. Large files are put together from one piece a shard, without
holding them in memory. `area` of a keypoint annotation is its box's; of an instance, its mask's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Final

import numpy as np
from pydantic import Field

from sapiens_batch.export import documents
from sapiens_batch.export.base import Exporter, ExportOptions, Labeled, Made, ShardToExport
from sapiens_batch.export.coco_masks import InstanceMasks, PanopticMasks
from sapiens_batch.export.keypoints import Subset, is_visible, keypoint_set, rounded
from sapiens_batch.export.maps import class_mask
from sapiens_batch.export.provenance import summary
from sapiens_batch.export.spool import JsonSpool, Spool, write_pieces
from sapiens_batch.records import Array

PERSON_CATEGORY: Final = 1
PERSONS_PER_IMAGE: Final = 100_000
"""Annotation ids are image id times this, plus the person, plus 1: unique without counting."""


class CocoOptions(ExportOptions):
    """Options of `coco`."""

    keypoints: Subset = Field(default="all", description="All keypoints, or COCO's 17 of the body.")
    score_threshold: float = Field(
        default=0.3, description="Keypoints that score less are not visible: v = 0, x = y = 0."
    )
    masks: bool = Field(default=True, description="Write instances and panoptic masks from `seg`.")
    pictures: bool = Field(default=False, description="Copy the photos to `images/`.")


class CocoExporter(Exporter[CocoOptions]):
    """COCO JSON files and panoptic PNGs."""

    name = "coco"
    options_type = CocoOptions
    pictures = "optional"
    needs = ("pose", "seg")

    def prepare(self) -> None:
        """Decide which keypoints and masks there are."""
        pose, seg = self.schemas.get("pose"), self.schemas.get("seg")
        self._points = keypoint_set(pose, self.options.keypoints) if pose else None
        self._instances = InstanceMasks(seg) if seg and self.options.masks else None
        self._panoptic = PanopticMasks(seg) if seg and self.options.masks else None

    @property
    def _lists(self) -> tuple[str, ...]:
        """Names of the pieces that each shard adds to."""
        found = ["images"]
        if self._points is not None:
            found += ["keypoints", "results"]
        if self._instances is not None:
            found += ["instances", "panoptic"]
        return tuple(found)

    def shard(self, shard: ShardToExport) -> Iterator[Made]:
        """Panoptic PNGs and photos of a shard, then its pieces."""
        with ExitStack() as stack:
            pieces = {name: stack.enter_context(JsonSpool()) for name in self._lists}
            for sample in shard.samples:
                file_name = self._file_name(shard, sample)
                pieces["images"].add(_image_record(sample, file_name))
                if sample.picture is not None:
                    yield Made(f"images/{file_name}", sample.picture.encoded)
                mask = class_mask(sample.labels) if self._instances is not None else None
                self._add_persons(pieces, sample, mask)
                if self._panoptic is not None and mask is not None:
                    png, segments = self._panoptic.of(mask)
                    panoptic = _panoptic_record(shard, sample, segments)
                    pieces["panoptic"].add(panoptic)
                    yield Made(f"annotations/panoptic/{panoptic['file_name']}", png)
            for name, piece in pieces.items():
                if piece.count:
                    key = documents.piece(shard.number, f"{name}.json")
                    yield Made(key, piece.view(), piece.count)

    def finish(self, finished: documents.Finished) -> Iterator[Made]:
        """The JSON files."""
        info = {"description": summary(self.origin), "sapiens_batch": dict(self.origin)}
        person: dict[str, Any] = {
            "id": PERSON_CATEGORY, "name": "person", "supercategory": "person",
        }  # fmt: skip
        if self._points is not None:
            links = [[a + 1, b + 1] for a, b in self._points.skeleton]  # COCO counts from 1
            category = {**person, "keypoints": list(self._points.names), "skeleton": links}
            noted = {
                **info,
                "score_threshold": self.options.score_threshold,
                "visibility": "2: score at least score_threshold and inside the image; else 0",
                "area": "width times height of the box",
                "sigmas": list(self._points.sigmas),
            }
            yield from _dataset(finished, "person_keypoints", "keypoints", noted, [category])
            yield from _results(finished)
        if self._instances is not None and self._panoptic is not None:
            noted = {**info, "masks": self._instances.description}
            yield from _dataset(finished, "instances", "instances", noted, [person])
            categories = self._panoptic.categories
            yield from _dataset(finished, "panoptic", "panoptic", info, categories)

    def _file_name(self, shard: ShardToExport, sample: Labeled) -> str:
        if sample.picture is None:
            return str(sample.labels.row["key"])
        return f"{shard.number:06d}/{sample.name}.{sample.picture.suffix}"

    def _add_persons(
        self, pieces: Mapping[str, JsonSpool], sample: Labeled, mask: Array | None
    ) -> None:
        for person in sample.labels.persons:
            record = _person_record(sample, person)
            if self._points is not None:
                xy, scores = self._points.take(person)
                visible = is_visible(xy, scores, sample.size, self.options.score_threshold)
                pieces["keypoints"].add(record | _visible_points(xy, visible))
                pieces["results"].add(_result(record, person, xy, scores))
            if self._instances is not None and mask is not None:
                found = self._instances.annotation(sample.labels, person, mask)
                if found is not None:
                    pieces["instances"].add(record | found)


def _panoptic_record(
    shard: ShardToExport, sample: Labeled, segments: list[dict[str, Any]]
) -> dict[str, Any]:
    image_id = sample.number + 1
    file_name = f"{shard.number:06d}/{image_id:012d}.png"
    return {"image_id": image_id, "file_name": file_name, "segments_info": segments}


def _image_record(sample: Labeled, file_name: str) -> dict[str, Any]:
    height, width = sample.size
    status = sample.labels.row["status"]
    return {
        "id": sample.number + 1, "file_name": file_name, "height": height, "width": width,
        **sample.identity, "status": status,
    }  # fmt: skip


def _person_record(sample: Labeled, person: Mapping[str, Any]) -> dict[str, Any]:
    image_id = sample.number + 1
    _, _, width, height = (float(value) for value in person["bbox"])
    return {
        "id": image_id * PERSONS_PER_IMAGE + int(person["person"]) + 1,
        "image_id": image_id,
        "category_id": PERSON_CATEGORY,
        "iscrowd": 0,
        "bbox": rounded(person["bbox"], 2),
        "area": round(width * height, 2),
        "person": int(person["person"]),
    }


def _visible_points(xy: Array, visible: Array) -> dict[str, Any]:
    triples = np.zeros((len(xy), 3))
    triples[visible, :2] = xy[visible]
    triples[visible, 2] = 2
    flat = [int(value) if n % 3 == 2 else value for n, value in enumerate(rounded(triples, 2))]
    return {"keypoints": flat, "num_keypoints": int(visible.sum())}


def _result(
    record: Mapping[str, Any], person: Mapping[str, Any], xy: Array, scores: Array
) -> dict[str, Any]:
    """A detection as COCO evaluates it: every point with its score, none left out."""
    found: Array = np.logical_and.reduce(np.isfinite(xy), axis=1)
    triples = np.where(found[:, None], np.column_stack([xy, scores]), 0)
    mean = float(scores[found].mean()) if found.any() else 0.0
    box_score = 1.0 if person["bbox_score"] is None else float(person["bbox_score"])
    return {
        "image_id": record["image_id"],
        "category_id": PERSON_CATEGORY,
        "bbox": record["bbox"],
        "keypoints": rounded(triples, 4),
        "score": round(mean * box_score, 6),
    }


def _dataset(
    finished: documents.Finished,
    file: str,
    name: str,
    info: Mapping[str, Any],
    categories: list[Any],
) -> Iterator[Made]:
    head = {"info": info, "licenses": [], "categories": categories}
    with Spool() as spool:
        spool.write(json.dumps(head, ensure_ascii=False).encode().removesuffix(b"}"))
        spool.write(b',\n"images": [\n')
        write_pieces(spool, finished.pieces("images.json"))
        spool.write(b'],\n"annotations": [\n')
        write_pieces(spool, finished.pieces(f"{name}.json"))
        spool.write(b"]}\n")
        yield Made(f"annotations/{file}.json", spool.view())


def _results(finished: documents.Finished) -> Iterator[Made]:
    with Spool() as spool:
        spool.write(b"[\n")
        write_pieces(spool, finished.pieces("results.json"))
        spool.write(b"]\n")
        yield Made("results/person_keypoints.json", spool.view())
