"""What every stored label file says about itself, whatever its format.

A sink is a module of pure functions: records in, the bytes of one whole object out, and the
inverse. It pins the schema, never infers it, touches no store, and puts `describe(...)` under
`METADATA_KEY`, so that a file is understood without this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sapiens_batch.records import FORMAT_VERSION

METADATA_KEY = "sapiens_batch"

CONVENTIONS: Mapping[str, str] = {
    "coordinates": "(x, y) in pixels of the source image after EXIF orientation",
    "pixel_centres": "integers: the top left pixel's centre is (0, 0)",
    "sizes": "(height, width)",
    "boxes": "COCO xywh: left, top, width, height in source pixels",
    "affine": "scale_x, scale_y, offset_x, offset_y: source = scale * frame + offset",
    "frame": "top left <task>_height x <task>_width pixels of an array row; the rest is fill",
}


def describe(**content: Any) -> dict[str, Any]:
    """The self-description of one file: version, conventions, and what the format adds."""
    return {"format_version": FORMAT_VERSION, "conventions": dict(CONVENTIONS), **content}
