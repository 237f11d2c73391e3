"""Which fields of the `source` section have an effect on which format.

A field that a format does not look at is refused rather than ignored. What the fields mean is said
in `spec`, what is done with them in `sources`.
"""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel

_RECORDS: Final = ("boxes", "box_scores", "columns")
_TABLES: Final = (*_RECORDS, "image", "key", "root")
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "webdataset": (*_RECORDS, "image", "companion"),
    "parquet": _TABLES,
    "images": ("image", "shard_samples"),
    "listing": (*_RECORDS, "key", "root", "uri_column", "shard_samples"),
    "coco": ("box_scores", "columns", "root", "shard_samples"),
    "huggingface": (*_TABLES, "split"),
    "lance": (*_TABLES, "snapshot", "catalog_options"),
    "delta": (*_TABLES, "snapshot", "catalog_options"),
    "iceberg": (*_TABLES, "snapshot", "catalog_options"),
}
"""Fields that a format looks at, besides those that all of them do."""

_SOME: Final = frozenset(name for names in _FIELDS.values() for name in names)


def without_effect(form: str, source: BaseModel) -> list[str]:
    """What to say of each field that is given and has no effect; none of them, an empty list.

    Defaults count as not given, so that a section read back from `job.json` is valid.

    Args:
        form: The format of the source.
        source: The `source` section.
    """
    faults = []
    for name, field in type(source).model_fields.items():
        default = field.get_default(call_default_factory=True)
        if name not in _SOME or name in _FIELDS[form] or getattr(source, name) == default:
            continue
        others = ", ".join(one for one, names in _FIELDS.items() if name in names)
        faults.append(f"{name}: has no effect on `format: {form}`, only on {others}; leave it out")
    return faults
