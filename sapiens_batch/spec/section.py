"""What every section of a job file is: frozen, without unknown fields, and true to its types.

Pydantic takes `true` for the number 1; here a truth value fits fields that hold one, and no other.
"""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator


class Section(BaseModel):
    """A mapping of fields; an unknown field is an error, so that nothing is silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_value_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields[str(info.field_name)]
        if _has_truth_value(value) and not _takes_truth_values(field.annotation):
            raise ValueError(
                "true, yes, on and their opposites are truth values, which do not fit here; write "
                "a number, or put text into quotes"
            )
        return value


def _has_truth_value(value: Any) -> bool:
    values = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(one, bool) for one in values)


def _takes_truth_values(annotation: Any) -> bool:
    """Whether the type is `bool`, or a literal truth value."""
    return annotation is bool or any(isinstance(one, bool) for one in get_args(annotation))
