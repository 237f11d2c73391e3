"""How to read the pictures: colours of sides, fingers and face features, of normals and depth.

The colours are those that `skeleton` and `maps` draw with; where the legend stands is left to the
templates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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


@dataclass(frozen=True, slots=True)
class Legend:
    """Explanations of colours.

    Attributes:
        sides: (name, CSS colour) of limbs by the person's own side.
        fingers: (name, CSS colour).
        features: (name, CSS colour) of face points.
        normals: A sphere in the colours of normals, as a data URI.
        depth: The colours of depth from far to near, as a data URI.
    """

    sides: tuple[tuple[str, str], ...]
    fingers: tuple[tuple[str, str], ...]
    features: tuple[tuple[str, str], ...]
    normals: str
    depth: str


def make_legend() -> Legend:
    """The legend of `skeleton` and `maps`."""
    fingers = ((_FINGERS.get(name, name), css_colour(rgb)) for name, rgb in FINGER_COLOURS.items())
    return Legend(
        sides=tuple((name, css_colour(rgb)) for name, rgb in SIDE_COLOURS.items()),
        fingers=tuple(one for one in fingers if one[0]),
        features=tuple((_FEATURES[n], css_colour(FACE_COLOURS[n])) for n in _FEATURES),
        normals=encode_panel(Panel("legend", "", normal_picture(_sphere(72)))).uri,
        depth=encode_panel(Panel("legend", "", np.repeat(depth_scale(), 12, axis=0))).uri,
    )


def _sphere(size: int) -> Array:
    """(3, size, size) normals of a sphere, NaN around it."""
    y, x = np.mgrid[1 : -1 : size * 1j, -1 : 1 : size * 1j]
    outside = x**2 + y**2 > 1
    normals = np.stack([x, y, np.sqrt(np.maximum(0, 1 - x**2 - y**2))])
    normals[:, outside] = np.nan
    return normals
