"""Write the bundled shard from the photos beside it: `python -m sapiens_batch.samples.build`.

One sample of each kind that a job meets: one person, two persons, nobody, a file that is cut short.
Invariant: the same photos give the same bytes, whenever and wherever the shard is built.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

PHOTOS = Path(__file__).parent / "photos"
SHARD = Path(__file__).parent / "quickstart-000000.tar"

# COCO xywh in pixels.
_BOXES: Mapping[str, list[list[float]]] = {
    "astronaut": [[9.4, 7.6, 359.5, 504.4]],
    "cat": [],
    "photographer": [[0, 63, 345, 449]],
    "portraits": [[0, 14, 320, 411], [322, 12, 318, 413]],
    "truncated": [[0, 14, 320, 411], [322, 12, 318, 413]],
}
_TRUNCATED_FROM = "portraits.jpg"
_TRUNCATED_FRACTION = 0.6


def members() -> dict[str, bytes]:
    """The files of the shard by name."""
    files: dict[str, bytes] = {}
    for key, boxes in _BOXES.items():
        photo = _TRUNCATED_FROM if key == "truncated" else f"{key}.jpg"
        whole = (PHOTOS / photo).read_bytes()
        share = _TRUNCATED_FRACTION if key == "truncated" else 1.0
        files[f"{key}.jpg"] = whole[: int(len(whole) * share)]
        files[f"{key}.json"] = json.dumps({"boxes": boxes, "boxes_source": "drawn by eye"}).encode()
    return files


def build(path: Path) -> None:
    """Write the shard: members sorted by name, with times and owners of zero."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as shard:
        for name, content in sorted(members().items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            shard.addfile(member, io.BytesIO(content))


if __name__ == "__main__":
    build(SHARD)
