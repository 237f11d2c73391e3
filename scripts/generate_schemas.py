"""Write the JSON Schemas of `schemas/` and `docs/spec.md`, or check that they fit the code.

`python scripts/generate_schemas.py` writes, with `--check` it compares and exits 1 on a difference.
The models themselves are the source; nothing is edited by hand in these files.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pydantic import BaseModel
from spec_reference import spec_reference

from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.documents import Document
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.protocol.orders import RelabelOrder
from sapiens_batch.protocol.plan import PlanDocument
from sapiens_batch.protocol.receipt import Receipt
from sapiens_batch.spec.job import JobSpec

REPO = Path(__file__).resolve().parent.parent

MODELS: dict[str, type[BaseModel]] = {
    "spec": JobSpec,
    "job": JobDocument,
    "plan": PlanDocument,
    "receipt": Receipt,
    "commit": Commit,
    "relabel": RelabelOrder,
}


def render(model: type[BaseModel]) -> str:
    """The JSON Schema of a model as it is stored."""
    schema = model.model_json_schema(mode="validation")
    if issubclass(model, Document):
        schema["properties"]["crc32c"] = {
            "description": "CRC-32C of the bytes before this member and its comma",
            "pattern": "^[0-9a-f]{8}$",
            "type": "string",
        }
        schema["required"].append("crc32c")
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write or check every file; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args().check
    wanted = {f"schemas/{name}.schema.json": render(model) for name, model in MODELS.items()}
    wanted["docs/spec.md"] = spec_reference()
    stale = []
    for name, text in wanted.items():
        path = REPO / name
        if path.is_file() and path.read_text() == text:
            continue
        stale.append(name)
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    if check and stale:
        print(f"out of date: {', '.join(stale)}; run python scripts/generate_schemas.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
