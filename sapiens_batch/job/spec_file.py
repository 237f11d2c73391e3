"""From a YAML file to a validated job: overrides, environment variables, readable faults.

What a job may say is defined in `job.spec`; this module only reads it and tells what is wrong.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from sapiens_batch.errors import SpecError
from sapiens_batch.job.spec import JobSpec


def load_spec(path: Path, overrides: Sequence[str] = ()) -> JobSpec:
    """Read and validate a job file.

    `${NAME}` in any string is replaced by the environment variable.

    Args:
        path: The YAML file.
        overrides: `dotted.field=value` assignments, values parsed as YAML, applied last.

    Raises:
        SpecError: The file is missing or no YAML mapping, a variable is unset, an override has no
            `=`, or a field breaks a rule; the message lists field, rule and value of every fault.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"job file {path} cannot be read: {error}") from error
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SpecError(f"job file {path} is not valid YAML: {error}") from error
    if not isinstance(values, dict):
        raise SpecError(
            f"job file {path} must be a mapping of sections, found {type(values).__name__}"
        )
    for assignment in overrides:
        _override(values, assignment)
    return parse_spec(_interpolate(values), origin=str(path))


def parse_spec(values: Mapping[str, Any], origin: str = "job spec") -> JobSpec:
    """Validate a job given as plain values.

    Raises:
        SpecError: A field breaks a rule; the message lists every fault.
    """
    try:
        return JobSpec.model_validate(values)
    except ValidationError as error:
        faults = "\n".join(f"  {_fault(dict(item))}" for item in error.errors())
        raise SpecError(f"{origin} has {error.error_count()} fault(s):\n{faults}") from error


def _fault(item: dict[str, Any]) -> str:
    where = ".".join(str(part) for part in item["loc"] if part != "[key]") or "(top level)"
    if item["type"] == "missing":
        return f"{where}: required, but absent"
    if item["type"] == "extra_forbidden":
        close = difflib.get_close_matches(str(item["loc"][-1]), _field_names(JobSpec), n=1)
        hint = f"; did you mean `{close[0]}`?" if close else ""
        return f"{where}: no such field{hint}"
    return f"{where}: {item['msg']}; found {item['input']!r}"


def _field_names(model: type[BaseModel]) -> list[str]:
    names = []
    for name, field in model.model_fields.items():
        names.append(field.alias or name)
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                names += _field_names(kind)
    return names


def _override(values: dict[str, Any], assignment: str) -> None:
    path, separator, text = assignment.partition("=")
    if not separator:
        raise SpecError(f"--set {assignment}: expected dotted.field=value")
    *parents, last = path.split(".")
    target = values
    for name in parents:
        target = target.setdefault(name, {})
        if not isinstance(target, dict):
            raise SpecError(f"--set {assignment}: `{name}` is not a section")
    target[last] = yaml.safe_load(text)


def _interpolate(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _interpolate(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_interpolate(item) for item in value]
    if isinstance(value, str):
        return re.sub(r"\$\{(\w+)\}", _variable, value)
    return value


def _variable(match: re.Match[str]) -> str:
    name = match.group(1)
    if name not in os.environ:
        raise SpecError(f"${{{name}}} in the job file: the environment variable {name} is not set")
    return os.environ[name]
