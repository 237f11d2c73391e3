"""From a YAML file to a validated job: overrides, environment variables, readable faults.

What a job may say is defined in `spec.job`, what is wrong with it is worded in `spec.mistakes`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sapiens_batch.errors import SpecError
from sapiens_batch.spec.job import JobSpec
from sapiens_batch.spec.mistakes import refusal
from sapiens_batch.spec.yaml_file import parse_assigned, read_yaml


def load_spec(path: Path, overrides: Sequence[str] = ()) -> JobSpec:
    """Read and validate a job file.

    `${NAME}` in any string is replaced by the environment variable.

    Args:
        path: The YAML file.
        overrides: `dotted.field=value` assignments, values parsed as YAML, applied last.

    Raises:
        SpecError: The file is missing or no YAML mapping, a key stands in it twice, a variable is
            unset, an override has no `=`, or a field breaks a rule; the message lists field, rule
            and value of every fault.
    """
    values = read_yaml(path, "job file")
    if values is None:
        raise SpecError(
            f"job file {path} is empty: it needs at least name, source, tasks and output"
        )
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
        raise refusal(error, JobSpec, origin) from error


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
    target[last] = parse_assigned(text, f"--set {assignment}")


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
