"""The reference of all fields of a job file, as Markdown made from the pydantic models.

What a field means is said in its `description` in `spec.job` and `spec.task`; this module only
lays it out. Writing and checking the page is left to `generate_schemas.py`.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sapiens_batch.spec.job import JobSpec

_BOUNDS = (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))

_HEAD = """\
# The job file
Every field, by section; this page is made from the code by `scripts/generate_schemas.py`. A field that is not listed is refused. In any text `${NAME}` is replaced by the environment variable. On the command line `--set section.field=value` overrides a field. Editors can use the [JSON Schema](../schemas/spec.schema.json); examples are in the [README](../README.md), in [`jobs/`](../jobs) and in [sources.md](sources.md).
"""  # noqa: E501, a paragraph of Markdown is one line


def spec_reference() -> str:
    """The page `docs/spec.md`."""
    return "\n".join([_HEAD, *_section("", JobSpec)])


def _section(path: str, model: type[BaseModel]) -> Iterator[str]:
    """A table of the model's own fields, then its sections; the top level has no heading."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    if path:
        yield f"## `{path}`\n{_summary(model)}\n"
    yield "| field | type | default | meaning |\n|---|---|---|---|"
    for name, field in fields.items():
        inner = _model_in(field.annotation)
        meaning = field.description or (_summary(inner) if inner else "")
        kind = _link(_child(path, name, field)) if inner else _type(field)
        yield f"| `{name}` | {kind} | {_default(field)} | {_cell(meaning)} |"
    yield ""
    for name, field in fields.items():
        if inner := _model_in(field.annotation):
            yield from _section(_child(path, name, field), inner)


def _child(path: str, name: str, field: FieldInfo) -> str:
    """Dotted name of a section; `<task>` stands for the names of a mapping."""
    keyed = get_origin(field.annotation) is dict
    return ".".join(part for part in (path, name, "<task>" if keyed else "") if part)


def _link(section: str) -> str:
    """A link to a section's heading, named as Markdown viewers name it."""
    anchor = "".join(letter for letter in section if letter.isalnum() or letter in "_-")
    return f"[section](#{anchor})"


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The section that a field holds, be it optional or the value of a mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_model_in(part) for part in get_args(annotation))
    return next((model for model in found if model is not None), None)


def _summary(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0]


def _type(field: FieldInfo) -> str:
    return _cell(f"{_kind(field.annotation)}{_bounds(field.metadata)}")


def _kind(annotation: Any) -> str:
    """A type in words; what may be null is so by leaving it out."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return f"{_kind(parts[0])}{_bounds(_constraints(parts[1:]))}"
    if origin is Literal:
        return " or ".join(_value(value) for value in parts)
    if origin in (Union, types.UnionType):
        return " or ".join(_kind(part) for part in parts if part is not type(None))
    if origin is tuple:
        return f"list of {len(parts)}: {_kind(parts[0])}"
    if origin is list:
        return f"list of {_kind(parts[0])}"
    if origin is dict or annotation is dict:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(_value(member.value) for member in annotation)
    return {str: "text", int: "integer", float: "number", bool: "`true` or `false`"}[annotation]


def _constraints(metadata: tuple[Any, ...]) -> list[Any]:
    """What an annotation restricts; constraints of pydantic fields are inside them."""
    return [
        inner
        for item in metadata
        for inner in (item.metadata if isinstance(item, FieldInfo) else [item])
    ]


def _bounds(constraints: list[Any]) -> str:
    return "".join(
        f", {sign} {getattr(item, name)}"
        for item in constraints
        for name, sign in _BOUNDS
        if getattr(item, name, None) is not None
    )


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return ""
    return "" if value is None else _value(value)


def _value(value: Any) -> str:
    """A value as YAML has it."""
    if isinstance(value, Enum):
        value = value.value
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _cell(text: str) -> str:
    """Text that does not end a cell of a table."""
    return text.replace("|", "\\|")
