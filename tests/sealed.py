"""Documents that no code of ours would write, with the checksum that they would have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import google_crc32c


def sealed(document: Mapping[str, Any]) -> bytes:
    """A document as one line of JSON; a checksum that it has already is replaced."""
    members = {name: value for name, value in document.items() if name != "crc32c"}
    content = json.dumps(members, separators=(",", ":")).encode()[:-1]
    return content + b',"crc32c":"%08x"}' % google_crc32c.value(content)
