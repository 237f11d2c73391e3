"""What is wrong with a document that people write, one line a fault: field, rule, value, way out.

Turns pydantic's findings into words about the document. A validator that judges several fields
starts its message with the field, seen from its own section, and may put one fault on each line.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError

from sapiens_batch.errors import SpecError
from sapiens_batch.storage.addresses import public_text

_SHOWN_CHARACTERS: Final = 200
_VALUE_ERROR: Final = "Value error, "
_SECRET: Final = frozenset({"storage_options", "catalog_options"})
_HIDDEN: Final = "a value that is not shown"
_ALTERNATIVE: Final = re.compile(r"str|constrained-\w+|(list|literal|dict)\[.*\]|\[key\]")
"""What pydantic adds to a place: which of a field's types it tried, and that a name is meant."""


def describe_faults(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """One line for each fault.

    Args:
        error: What validation raised.
        model: What the document was to be; its field names are offered for misspelt ones.
    """
    faults: dict[str, list[str]] = {}
    for item in error.errors():
        faults.setdefault(_place(item["loc"]), []).extend(_fault(dict(item), model))
    return [line for lines in faults.values() for line in dict.fromkeys(lines)]


def refusal(error: ValidationError, model: type[BaseModel], origin: str) -> SpecError:
    """The error that lists every fault of a document.

    Args:
        error: What validation raised.
        model: What the document was to be.
        origin: What the document is called.
    """
    faults = describe_faults(error, model)
    listed = "\n".join(f"  {fault}" for fault in faults)
    return SpecError(f"{origin} has {len(faults)} fault(s):\n{listed}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint at the name that was probably meant; empty where none is near."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean `{close[0]}`?" if close else ""


def _fault(item: dict[str, Any], model: type[BaseModel]) -> list[str]:
    where, given, kind = _place(item["loc"]), _public(item["loc"], item["input"]), item["type"]
    if kind == "missing":
        return [f"{where}: required, but absent"]
    if kind == "extra_forbidden":
        return [f"{where}: no such field{did_you_mean(str(item['loc'][-1]), _field_names(model))}"]
    if kind in ("literal_error", "enum"):
        return [_not_among(item, where)]
    if kind in ("model_type", "dict_type"):
        return [f"{where}: {_mapping_wanted(item['loc'])}; found {_shown(given)}"]
    if kind == "too_short":
        return [f"{where}: needs at least {item['ctx']['min_length']}; found {_shown(given)}"]
    message = item["msg"].removeprefix(_VALUE_ERROR)
    if kind == "value_error" and isinstance(given, Mapping):
        prefix = f"{where}." if where else ""
        return [prefix + line for line in message.splitlines()]
    return [f"{where or '(top level)'}: {message}; found {_shown(given)}"]


def _place(parts: Iterable[str | int]) -> str:
    return ".".join(str(part) for part in parts if not _ALTERNATIVE.fullmatch(str(part)))


def _not_among(item: dict[str, Any], where: str) -> str:
    """A value, or the name of a field, that is none of those there are."""
    given, message = item["input"], item["msg"]
    choices = item["ctx"]["expected"].replace(" or ", ", ").replace("'", "").split(", ")
    hint = did_you_mean(str(given), choices)
    if item["loc"][-1] == "[key]":
        return f"{where}: no such task{hint or '.'} There are {', '.join(choices)}"
    return f"{where}: {message}; found {_shown(given)}{hint}"


def _mapping_wanted(place: tuple[str | int, ...]) -> str:
    if place[:1] == ("tasks",) and len(place) > 1:
        return "must be the settings of the task, such as `{checkpoint: demo}`"
    return "must be a mapping of `field: value`"


def _public(place: tuple[str | int, ...], value: Any) -> Any:
    """A value without credentials, which options of stores may hold."""
    if not _SECRET.isdisjoint(map(str, place)):
        return _HIDDEN
    if isinstance(value, Mapping):
        return {name: _HIDDEN if name in _SECRET else one for name, one in value.items()}
    return value


def _shown(value: Any) -> str:
    text = public_text(repr(value))
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]} …"


def _field_names(model: type[BaseModel]) -> list[str]:
    names = []
    for name, field in model.model_fields.items():
        names.append(field.alias or name)
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                names += _field_names(kind)
    return names
