"""YAML files that people write: read safely, and refused where a key is given twice.

YAML itself lets the last of two equal keys win, which silently drops what the first one says. What
the values may be is left to the models of the documents.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from sapiens_batch.errors import SpecError


class _OnceLoader(yaml.SafeLoader):
    """The safe loader, in which a key stands once in a mapping."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[Any, Any] = {}
        for name, _ in node.value:
            if not isinstance(name, yaml.ScalarNode) or name.tag == "tag:yaml.org,2002:merge":
                continue
            if (first := seen.setdefault(name.value, name)) is not name:
                raise yaml.constructor.ConstructorError(
                    f"`{name.value}` stands in line {first.start_mark.line + 1}",
                    None,
                    "and is given again: keep one of them",
                    name.start_mark,
                )
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, what: str) -> Any:
    """The values in a file; None where it is empty.

    Args:
        path: The file.
        what: What it is, for messages, such as `job file`.

    Raises:
        SpecError: It cannot be read, is no YAML, or gives a key twice; the message says where.
    """
    try:
        # the loader is safe: it makes plain values only
        return yaml.load(path.read_text(encoding="utf-8"), _OnceLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{what} {path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise SpecError(f"{what} {path} is not valid YAML: {error}") from error


def parse_assigned(text: str, origin: str) -> Any:
    """What stands right of `=` in an assignment, read as YAML.

    Raises:
        SpecError: It is no YAML.
    """
    try:
        return yaml.load(text, _OnceLoader)
    except yaml.YAMLError as error:
        raise SpecError(f"{origin}: the value is not valid YAML: {error}") from error
