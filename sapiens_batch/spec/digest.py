"""Digests of JSON values, and where two of them differ; pure functions.

What belongs into a job's digest is decided in `spec.job` (invariant I4).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def digest(fields: Mapping[str, Any]) -> str:
    """Hex sha256 of JSON values in canonical form."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def differences(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> list[str]:
    """Lines `field: old -> new` for every JSON value that differs, in field order."""
    lines = []
    for name in sorted({*before, *after}):
        where = f"{path}.{name}" if path else name
        old, new = before.get(name), after.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            lines += differences(old, new, where)
        elif old != new:
            lines.append(f"{where}: {_shown(old)} -> {_shown(new)}")
    return lines


def _shown(value: Any) -> str:
    return "(absent)" if value is None else json.dumps(value, ensure_ascii=False)
