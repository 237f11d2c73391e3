"""How to read the pictures: colours of sides, fingers and face features, of normals and depth.

The colours are those that `skeleton` and `maps` draw with; where the legend stands is left to the
templates.
"""

from __future__ import annotations

from typing import Any

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


def make_legend() -> dict[str, Any]:
    """Names with CSS colours of `sides`, `fingers` and face `features`; data URIs of pictures.

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
