"""Choose the columns of a Parquet schema that hold the image, the key and the fields.

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
from sapiens_batch.job.spec import SourceSpec

_PATH_NAMES = ("image", "image_path", "path", "file_name", "uri")
"""String columns that are taken for image paths without being asked for."""

_KEY_NAMES = ("__key__", "key")

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
        image: The image column.
        key: Column of the sample's key; None where the shard has none.
        fields: Columns of boxes, scores and values to keep.
    """

    image: ImageColumn
    key: str | None
    fields: tuple[str, ...]

    @property
    def projected(self) -> list[str]:
        """All columns to read, each once."""
        names = [self.image.name, *([self.key] if self.key else []), *self.fields]
        return list(dict.fromkeys(names))


def choose_columns(schema: pa.Schema, spec: SourceSpec, where: str) -> Columns:
    """Decide what to read.

    Args:
        schema: Arrow schema of the file, with its metadata.
        spec: The source section of the job.
        where: File name for messages.

    Raises:
        InputError: A column that the job names is missing, none holds images, or several could.
    """
    asked = [spec.key, spec.boxes, spec.box_scores, *spec.columns]
    needed = [name for name in asked if name is not None]
    for name in needed:
        if name not in schema.names:
            raise InputError(f"{where} has no column {name!r}: it has {_listed(schema.names)}")
    image = _image_column(schema, spec, where)
    key = spec.key or next((name for name in _KEY_NAMES if name in schema.names), None)
    fields = tuple(dict.fromkeys(name for name in needed if name != spec.key))
    if image.repeated and spec.boxes:
        raise InputError(
            f"{where}: column {image.name!r} has several images a row, so {spec.boxes!r} cannot "
            "say which image its boxes belong to; write one image a row"
        )
    return Columns(image, key, fields)


def _image_column(schema: pa.Schema, spec: SourceSpec, where: str) -> ImageColumn:
    if spec.image:
        names = [name for name in spec.image if name in schema.names][:1]
        if not names:
            raise InputError(
                f"{where} has no image column {' or '.join(map(repr, spec.image))}: "
                f"it has {_listed(schema.names)}; name one in `image`"
            )
    else:
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
    column_type = schema.field(names[0]).type
    repeated = _is_list(column_type)
    kind = _kind(column_type.value_type if repeated else column_type)
    if kind is None:
        raise InputError(
            f"{where}: column {names[0]!r} is {column_type}, which cannot hold images: "
            "bytes, struct<bytes, path> or a path is needed"
        )
    return ImageColumn(names[0], kind, repeated)


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
    if pa.types.is_binary(column_type) or pa.types.is_large_binary(column_type):
        return "bytes"
    if pa.types.is_string(column_type) or pa.types.is_large_string(column_type):
        return "path"
    if pa.types.is_struct(column_type):
        names = {column_type.field(index).name for index in range(column_type.num_fields)}
        return "struct" if names & {"bytes", "path"} else None
    return None


def _is_list(column_type: pa.DataType) -> bool:
    return bool(pa.types.is_list(column_type) or pa.types.is_large_list(column_type))


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
