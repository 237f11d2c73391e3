"""HTML pages from templates: one self-contained file, written piece by piece.

Everything that came from a job is escaped by the template engine. What stands on a page is left to
the callers and their templates. A page replaces an older one as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from sapiens_batch.errors import StorageError
from sapiens_batch.labelset import LabelSet
from sapiens_batch.records import Array
from sapiens_batch.sheets.cards import css_colour, encode_panel
from sapiens_batch.sheets.maps import depth_scale, normal_picture
from sapiens_batch.sheets.panels import Panel
from sapiens_batch.sheets.skeleton import FACE_COLOURS, FINGER_COLOURS, SIDE_COLOURS

_FEATURES = {
    "brow": "brows", "lash": "eyelids", "iris": "irises", "nose": "nose", "lip": "lips",
    "helix": "ears",
}  # fmt: skip
_FINGERS = {"forefinger": "index", "hand": ""}
# More points of a chart would overlap, and make pages of large jobs slow.
_MAX_POINTS = 400


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the head of every page says about a job.

    Attributes:
        num_shards: Committed shards.
        counts: Samples by status, and persons.
        tasks: (task, model, licence) of each task.
        demo: Whether random weights made the labels.
        classes: (name, CSS colour) of every class of the part masks.
    """

    name: str
    num_shards: int
    counts: Mapping[str, int]
    tasks: tuple[tuple[str, str, str], ...]
    demo: bool
    classes: tuple[tuple[str, str], ...]


def job_facts(labels: LabelSet) -> JobFacts:
    """The facts of a job's committed shards."""
    totals = {"ok": 0, "empty": 0, "quarantined": 0, "persons": 0}
    for shard in labels.shards.values():
        for name in totals:
            totals[name] += getattr(shard.counts, name)
    tasks = tuple(
        (task, str(schema.metadata.get("model", "")), str(schema.metadata.get("licence", "")))
        for task, schema in labels.schemas.items()
    )
    seg = labels.schemas["seg"].metadata if "seg" in labels.schemas else {}
    classes = zip(seg.get("classes") or (), seg.get("palette_rgb") or (), strict=False)
    return JobFacts(
        name=labels.job.name,
        num_shards=len(labels.shards),
        counts=totals,
        tasks=tasks,
        demo=any(schema.metadata.get("demo") for schema in labels.schemas.values()),
        classes=tuple((name.replace("_", " "), css_colour(rgb)) for name, rgb in classes),
    )


def write_page(path: Path, template: str, **values: Any) -> None:
    """Render a template into a file; its folder is made, an older page is replaced.

    Raises:
        StorageError: The file cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as stream:
            environment().get_template(template).stream(**values).dump(stream, "utf-8")
        partial.replace(path)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error}; name another file") from error


@cache
def environment() -> jinja2.Environment:
    """The templates, with what they may call."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("sapiens_batch.sheets"),
        autoescape=jinja2.select_autoescape(("html",)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["percent"] = _percent
    made.filters["grouped"] = _grouped
    made.filters["points_to_draw"] = _points_to_draw
    made.globals["legend"] = _legend()
    return made


def _legend() -> dict[str, Any]:
    """How to read the pictures: names with CSS colours, and data URIs of two pictures.

    `normals` is a sphere in the colours of normals, `depth` the colours from far to near.
    """
    fingers = ((_FINGERS.get(name, name), css_colour(rgb)) for name, rgb in FINGER_COLOURS.items())
    return {
        "sides": [(name, css_colour(rgb)) for name, rgb in SIDE_COLOURS.items()],
        "fingers": [one for one in fingers if one[0]],
        "features": [(name, css_colour(FACE_COLOURS[n])) for n, name in _FEATURES.items()],
        "normals": encode_panel(Panel("legend", "", normal_picture(_sphere(72)))).uri,
        "depth": encode_panel(Panel("legend", "", np.repeat(depth_scale(), 12, axis=0))).uri,
    }


def _sphere(size: int) -> Array:
    """(3, size, size) normals of a sphere, NaN around it."""
    y, x = np.mgrid[1 : -1 : size * 1j, -1 : 1 : size * 1j]
    outside = x**2 + y**2 > 1
    normals = np.stack([x, y, np.sqrt(np.maximum(0, 1 - x**2 - y**2))])
    normals[:, outside] = np.nan
    return normals


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.1f} %"


def _points_to_draw(scores: Sequence[float | None], limit: float) -> list[tuple[int, float]]:
    """(shard, z-score) of every shard beyond the limit and of an even choice of the others."""
    known = [(place, z) for place, z in enumerate(scores) if z is not None]
    far = [one for one in known if abs(one[1]) > limit][:_MAX_POINTS]
    near = [one for one in known if abs(one[1]) <= limit]
    return far + near[:: max(1, -(-len(near) // _MAX_POINTS))]


def _grouped(number: float) -> str:
    """A count with thin spaces between thousands."""
    return f"{number:,.0f}".replace(",", "\N{THIN SPACE}")
