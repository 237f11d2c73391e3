"""FiftyOne's field documents: the types of a sample's fields, as `metadata.json` declares them.

Names of classes are FiftyOne's own. What the fields hold is written by `fiftyone`.
"""

from __future__ import annotations

from typing import Any

_FIELDS = "fiftyone.core.fields."
_LABELS = "fiftyone.core.labels."


def sample_fields(*, pose: bool, seg: bool, depth: bool) -> list[dict[str, Any]]:
    """Declarations of all fields of a sample, in order.

    Args:
        pose: Whether samples have keypoints.
        seg: Whether samples have class masks.
        depth: Whether samples have depth maps.
    """
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
    if seg:
        fields.append(_map("seg", "Segmentation", "mask_path"))
    if depth:
        fields.append(_map("depth", "Heatmap", "map_path"))
    return fields


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
