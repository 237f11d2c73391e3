"""Choose the columns of a table that hold the image, the key and the fields.

Pure decisions on a schema, so that planning and reading decide the same. A choice that is not
obvious is refused with the columns named, because guessing wrong labels the wrong images.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from sapiens_batch.errors import InputError
from sapiens_batch.sources.fields import needed_fields
from sapiens_batch.spec.job import SourceSpec

_PATH_NAMES = ("image", "image_path", "path", "file_name", "uri")
"""String columns that are taken for image paths without being asked for."""

_KEY_NAMES = ("__key__", "key")

_IMG2DATASET_NAMES = frozenset({"key", "status", "error_message"})
"""Columns that tell a table of img2dataset, whose `status` says which rows have no image."""

_BYTES_TYPES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
_TEXT_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_LIST_TYPES = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)

ImageKind = Literal["bytes", "struct", "path"]


@dataclass(frozen=True, slots=True)
class ImageColumn:
    """The column that holds images.

    Attributes:
        name: Column name.
        kind: Encoded bytes, a struct of `bytes` and `path` as Hugging Face writes it, or a path.
        repeated: Whether a row has a list of images; each is a sample of its own.
    """

    name: str
    kind: ImageKind
    repeated: bool


@dataclass(frozen=True, slots=True)
class Columns:
    """What to read from each row.

    Attributes:
        images: The image columns; each gives a sample of its own.
        key: Column of the row's key; None where the shard has none.
        status: Column in which img2dataset says whether a download succeeded, or None.
        fields: Columns of boxes, scores, values to keep, and what a selection goes by.
    """

    images: tuple[ImageColumn, ...]
    key: str | None
    status: str | None
    fields: tuple[str, ...]

    @property
    def several(self) -> bool:
        """Whether a row may have several images."""
        return len(self.images) > 1 or self.images[0].repeated

    @property
    def projected(self) -> list[str]:
        """All columns to read, each once."""
        names = [image.name for image in self.images]
        names += [name for name in (self.key, self.status) if name is not None]
        return list(dict.fromkeys([*names, *self.fields]))


def choose_columns(
    schema: pa.Schema, spec: SourceSpec, where: str, select_by: str | None = None
) -> Columns:
    """Decide what to read.

    Args:
        schema: Arrow schema of the file, with its metadata.
        spec: The source section of the job.
        where: File name for messages.
        select_by: Column that a selection goes by, or None.

    Raises:
        InputError: A column that the job names is missing, none holds images, or several could.
    """
    fields = needed_fields(spec, select_by)
    for name in [*fields, *([spec.key] if spec.key else [])]:
        if name not in schema.names:
            raise InputError(f"{where} has no column {name!r}: it has {_listed(schema.names)}")
    if missing := [name for name in spec.image if name not in schema.names]:
        raise InputError(
            f"{where} has no image column {_listed(missing)}: it has {_listed(schema.names)}; "
            "name those that it has in `image`"
        )
    names = spec.image or [_only_image(schema, where)]
    columns = Columns(
        images=tuple(_image_column(schema, name, where) for name in names),
        key=spec.key or next((name for name in _KEY_NAMES if name in schema.names), None),
        status="status" if _IMG2DATASET_NAMES.issubset(schema.names) else None,
        fields=tuple(fields),
    )
    if columns.several and spec.boxes:
        raise InputError(
            f"{where}: {_listed(names)} may have several images a row, so {spec.boxes!r} cannot "
            "say which image its boxes belong to; write one image a row"
        )
    return columns


def _only_image(schema: pa.Schema, where: str) -> str:
    names = _image_like(schema)
    if len(names) > 1:
        raise InputError(
            f"{where} has several columns that could hold images ({_listed(names)}): "
            f"name one, such as `image: [{names[0]}]`"
        )
    if not names:
        raise InputError(
            f"{where} has no column that looks like images: it has {_listed(schema.names)}; "
            "name one in `image`"
        )
    return names[0]


def _image_column(schema: pa.Schema, name: str, where: str) -> ImageColumn:
    column_type = schema.field(name).type
    repeated = _is_list(column_type)
    kind = _kind(column_type.value_type if repeated else column_type)
    if kind is None:
        raise InputError(
            f"{where}: column {name!r} is {column_type}, which cannot hold images: "
            "bytes, struct<bytes, path> or a path is needed"
        )
    return ImageColumn(name, kind, repeated)


def _image_like(schema: pa.Schema) -> list[str]:
    """Columns by the first rule that finds any: the footer, structs, bytes, lists, known names."""
    rules: list[Callable[[pa.Field[Any]], bool]] = [
        lambda field: field.name in _declared_images(schema),
        lambda field: _kind(field.type) == "struct",
        lambda field: _kind(field.type) == "bytes",
        lambda field: _is_list(field.type) and _kind(field.type.value_type) == "struct",
        lambda field: _kind(field.type) == "path" and field.name in _PATH_NAMES,
    ]
    for rule in rules:
        if names := [field.name for field in schema if rule(field)]:
            return names
    return []


def _declared_images(schema: pa.Schema) -> set[str]:
    """Columns that the Hugging Face footer declares to be images."""
    try:
        footer = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = footer["info"]["features"]
        return {name for name, feature in features.items() if feature["_type"] == "Image"}
    except (ValueError, KeyError, TypeError, AttributeError):
        return set()


def _kind(column_type: pa.DataType) -> ImageKind | None:
    if any(is_type(column_type) for is_type in _BYTES_TYPES):
        return "bytes"
    if any(is_type(column_type) for is_type in _TEXT_TYPES):
        return "path"
    if pa.types.is_struct(column_type):
        names = {column_type.field(index).name for index in range(column_type.num_fields)}
        return "struct" if names & {"bytes", "path"} else None
    return None


def _is_list(column_type: pa.DataType) -> bool:
    return any(is_type(column_type) for is_type in _LIST_TYPES)


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
