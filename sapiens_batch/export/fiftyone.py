"""FiftyOne: its FiftyOneDataset folder, with photos, boxes, keypoints, masks and depth.

Coordinates are relative to the image, measured from its top left corner. Missing and doubtful
keypoints are NaN, as FiftyOne marks them. Masks and maps are files beside the samples. Written in
the layout of version 0.23.8, which later versions bring up to date when they import it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
from pydantic import Field

from sapiens_batch.export import documents
from sapiens_batch.export.base import Exporter, ExportOptions, Labeled, Made, ShardToExport
from sapiens_batch.export.keypoints import Subset, keypoint_set
from sapiens_batch.export.maps import class_mask, depth_mm, encode_png
from sapiens_batch.export.provenance import summary
from sapiens_batch.export.spool import JsonSpool, Spool, write_pieces
from sapiens_batch.records import Array

LAYOUT_VERSION: Final = "0.23.8"

_MAPS: Final = {"seg": ("Segmentation", "mask_path"), "depth": ("Heatmap", "map_path")}
_FIELDS = "fiftyone.core.fields."
_LABELS = "fiftyone.core.labels."
_NAN = {"$numberDouble": "NaN"}
"""NaN in the extended JSON that FiftyOne reads; plain NaN is no JSON."""


class FiftyOneOptions(ExportOptions):
    """Options of `fiftyone`."""

    keypoints: Subset = Field(default="all", description="All keypoints, or COCO's 17 of the body.")
    score_threshold: float = Field(
        default=0.0, description="Keypoints that score less are NaN; their score is kept."
    )
    masks: bool = Field(default=True, description="Write class masks from `seg`.")
    depth: bool = Field(default=True, description="Write depth maps from `pointmap`, in mm.")
    pictures: bool = Field(default=True, description="Copy the photos to `data/`.")


class FiftyOneExporter(Exporter[FiftyOneOptions]):
    """A folder for `fo.Dataset.from_dir(..., dataset_type=fo.types.FiftyOneDataset)`."""

    name = "fiftyone"
    options_type = FiftyOneOptions
    pictures = "default"

    def prepare(self) -> None:
        """Decide which keypoints there are."""
        pose = self.schemas.get("pose")
        self._points = keypoint_set(pose, self.options.keypoints) if pose else None

    def shard(self, shard: ShardToExport) -> Iterator[Made]:
        """Photos, masks and maps of a shard, then its samples."""
        with JsonSpool() as piece:
            for sample in shard.samples:
                record = _sample_record(shard, sample)
                if sample.picture is not None:
                    yield Made(record["filepath"], sample.picture.encoded)
                record["persons"] = _detections(sample)
                if self._points is not None:
                    record["pose"] = self._keypoints(sample)
                for field, made in self._maps(shard, sample):
                    kind, path = _MAPS[field]
                    record[field] = {"_cls": kind, "tags": [], path: made.key}
                    yield made
                piece.add(record)
            if piece.count:
                yield Made(documents.piece(shard.number, "samples.json"), piece.view(), piece.count)

    def finish(self, finished: documents.Finished) -> Iterator[Made]:
        """`samples.json` and `metadata.json`."""
        with Spool() as spool:
            spool.write(b'{"samples": [')
            write_pieces(spool, finished.pieces("samples.json"))
            spool.write(b"]}")
            yield Made("samples.json", spool.view())
        document = json.dumps(self._metadata(), ensure_ascii=False, allow_nan=False)
        yield Made("metadata.json", document.encode())

    def _keypoints(self, sample: Labeled) -> dict[str, Any]:
        assert self._points is not None, "only asked for where the job has keypoints"
        found = []
        for person in sample.labels.persons:
            xy, scores = self._points.take(person)
            xy = np.where(scores[:, None] >= self.options.score_threshold, xy, np.nan)
            identity = _object_id(sample, f"pose-{person['person']}")
            points = [[_number(x), _number(y)] for x, y in _relative(xy, sample.size)]
            found.append(
                {"_id": identity, "_cls": "Keypoint", "attributes": {}, "tags": [],
                 "label": "person", "points": points,
                 "confidence": [round(float(score), 4) for score in scores],
                 "index": int(person["person"])}
            )  # fmt: skip
        return {"_cls": "Keypoints", "keypoints": found}

    def _maps(self, shard: ShardToExport, sample: Labeled) -> Iterator[tuple[str, Made]]:
        mask = class_mask(sample.labels) if self.options.masks else None
        if mask is not None:
            key = f"fields/seg/{shard.number:06d}/{sample.name}.png"
            yield "seg", Made(key, encode_png(mask))
        depth = depth_mm(sample.labels) if self.options.depth else None
        if depth is not None:
            key = f"fields/depth/{shard.number:06d}/{sample.name}.png"
            yield "depth", Made(key, encode_png(depth))

    def _metadata(self) -> dict[str, Any]:
        digest = hashlib.sha256(self.origin["spec_digest"].encode()).hexdigest()[:24]
        created = datetime.fromisoformat(self.origin["created"]).astimezone(UTC)
        seg, with_seg = self.schemas.get("seg"), self.options.masks and "seg" in self.schemas
        classes = (seg.metadata.get("classes") if seg else None) or ()
        targets = {str(number): name for number, name in enumerate(classes)}
        skeletons = {}
        if self._points is not None:
            edges = [list(link) for link in self._points.skeleton]
            skeletons["pose"] = {"labels": list(self._points.names), "edges": edges}
        return {
            "_id": {"$oid": digest},
            "name": self.origin["job"],
            "version": LAYOUT_VERSION,
            "created_at": {"$date": created.strftime("%Y-%m-%dT%H:%M:%SZ")},
            "last_loaded_at": None,
            "sample_collection_name": f"samples.{digest}",
            "persistent": False,
            "media_type": "image",
            "group_media_types": {},
            "tags": [],
            "description": summary(self.origin),
            "info": {"sapiens_batch": dict(self.origin), "depth_unit": "mm"},
            "app_config": {"media_fields": ["filepath"], "grid_media_field": "filepath",
                           "modal_media_field": "filepath", "plugins": {}},
            "classes": {"persons": ["person"]},
            "default_classes": [],
            "mask_targets": {"seg": targets} if with_seg else {},
            "default_mask_targets": {},
            "skeletons": skeletons,
            "sample_fields": _sample_fields(
                pose=self._points is not None,
                seg=with_seg,
                depth=self.options.depth and "pointmap" in self.schemas,
            ),
            "frame_fields": [],
            "saved_views": [],
            "workspaces": [],
            "annotation_runs": {},
            "brain_methods": {},
            "evaluations": {},
            "runs": {},
        }  # fmt: skip


def _sample_record(shard: ShardToExport, sample: Labeled) -> dict[str, Any]:
    height, width = sample.size
    picture = sample.picture
    key = str(sample.labels.row["key"])
    path = f"data/{shard.number:06d}/{sample.name}.{picture.suffix}" if picture else key
    identity = _object_id(sample, "")
    return {
        "_id": identity,
        "filepath": path,
        "tags": [],
        "metadata": {
            "_cls": "ImageMetadata",
            "size_bytes": len(picture.encoded) if picture else None,
            "mime_type": picture.mime_type if picture else None,
            "width": width, "height": height, "num_channels": 3,
        },
        "_media_type": "image",
        # FiftyOne draws random samples by this number, in [0, 1)
        "_rand": int(identity["$oid"][-8:], 16) / 2**32,
        "sapiens_key": key,
        "sapiens_shard": sample.labels.row["shard_id"],
        "sapiens_index": int(sample.labels.row["index"]),
        "sapiens_status": sample.labels.row["status"],
    }  # fmt: skip


def _detections(sample: Labeled) -> dict[str, Any]:
    height, width = sample.size
    found = []
    for person in sample.labels.persons:
        left, top, box_width, box_height = (float(value) for value in person["bbox"])
        score = person["bbox_score"]
        found.append(
            {"_id": _object_id(sample, f"person-{person['person']}"), "_cls": "Detection",
             "attributes": {}, "tags": [], "label": "person",
             "bounding_box": [(left + 0.5) / width, (top + 0.5) / height,
                              box_width / width, box_height / height],
             "confidence": None if score is None else float(score),
             "index": int(person["person"])}
        )  # fmt: skip
    return {"_cls": "Detections", "detections": found}


def _relative(xy: Array, size: tuple[int, int]) -> Array:
    """(K, 2) source pixels as shares of the image, (0, 0) its top left corner."""
    shares: Array = (xy + 0.5) / np.array([size[1], size[0]])
    return shares


def _number(value: float) -> float | dict[str, str]:
    return round(float(value), 6) if np.isfinite(value) else dict(_NAN)


def _object_id(sample: Labeled, part: str) -> dict[str, str]:
    """A database id from what it identifies."""
    row = sample.labels.row
    name = f"{row['shard_id']}/{row['index']}/{part}"
    return {"$oid": hashlib.sha256(name.encode()).hexdigest()[:24]}


def _sample_fields(*, pose: bool, seg: bool, depth: bool) -> list[dict[str, Any]]:
    """Field documents, which declare all fields of a sample, in order; classes are FiftyOne's."""
    fields = [
        _field("id", "ObjectIdField", db_field="_id"),
        _field("filepath", "StringField"),
        _field("tags", "ListField", subfield=_FIELDS + "StringField"),
        _embedded("metadata", "fiftyone.core.metadata.ImageMetadata", _metadata_fields()),
        *(_field(f"sapiens_{name}", "StringField") for name in ("key", "shard", "status")),
        _field("sapiens_index", "IntField"),
        _label_list("persons", "Detection", [
            _field("bounding_box", "ListField", subfield=_FIELDS + "FloatField"),
            _field("confidence", "FloatField"),
            _field("index", "IntField"),
        ]),
    ]  # fmt: skip
    if pose:
        fields.append(_label_list("pose", "Keypoint", [
            _field("points", "KeypointsField"),
            _field("confidence", "ListField", subfield=_FIELDS + "FloatField"),
            _field("index", "IntField"),
        ]))  # fmt: skip
    wanted = [name for name, there in (("seg", seg), ("depth", depth)) if there]
    return fields + [_map(name, *_MAPS[name]) for name in wanted]


def _field(
    name: str, kind: str, *, subfield: str | None = None, db_field: str | None = None
) -> dict[str, Any]:
    return {
        "name": name, "ftype": _FIELDS + kind, "embedded_doc_type": None, "subfield": subfield,
        "fields": [], "db_field": db_field or name, "description": None, "info": None,
    }  # fmt: skip


def _embedded(name: str, document: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    field = _field(name, "EmbeddedDocumentField")
    return {**field, "embedded_doc_type": document, "fields": fields}


def _label_list(name: str, label: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    """A field such as Detections, which holds a list of Detection."""
    items = {
        **_field(f"{label.lower()}s", "ListField", subfield=_FIELDS + "EmbeddedDocumentField"),
        "embedded_doc_type": _LABELS + label,
        "fields": [*_label_fields(), _field("label", "StringField"), *fields],
    }
    return _embedded(name, f"{_LABELS}{label}s", [items])


def _map(name: str, label: str, path: str) -> dict[str, Any]:
    return _embedded(name, _LABELS + label, [*_label_fields()[:2], _field(path, "StringField")])


def _label_fields() -> list[dict[str, Any]]:
    return [
        _field("id", "ObjectIdField", db_field="_id"),
        _field("tags", "ListField", subfield=_FIELDS + "StringField"),
        _field("attributes", "DictField"),
    ]


def _metadata_fields() -> list[dict[str, Any]]:
    numbers = ("size_bytes", "width", "height", "num_channels")
    return [_field("mime_type", "StringField"), *(_field(name, "IntField") for name in numbers)]
