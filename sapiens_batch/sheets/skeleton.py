"""Persons drawn on a picture: limbs, hands finger by finger, face points.

Sizes follow the person, not the picture, so that a crowd stays readable and a portrait is not thin.
Limbs are coloured by the person's own side, fingers by finger, face points by feature. Points that
are missing or whose score is not above the threshold are not drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import cv2
import numpy as np

from sapiens_batch.records import Array
from sapiens_batch.sheets.groups import group_of, side_of

Colour = tuple[int, int, int]

# The published skeleton's scheme: green for left, orange for right, blue in the middle.
SIDE_COLOURS: Final[Mapping[str, Colour]] = {
    "left": (64, 220, 120), "right": (255, 150, 50), "middle": (80, 170, 255),
}  # fmt: skip
FINGER_COLOURS: Final[Mapping[str, Colour]] = {
    "thumb": (255, 196, 0), "forefinger": (255, 120, 220), "middle": (110, 190, 255),
    "ring": (255, 90, 90), "pinky": (90, 230, 110), "hand": (230, 230, 230),
}  # fmt: skip
FACE_COLOURS: Final[Mapping[str, Colour]] = {
    "brow": (255, 190, 90), "lash": (90, 225, 255), "eyelid": (90, 225, 255),
    "crease": (60, 170, 220), "iris": (120, 255, 170), "pupil": (30, 120, 70),
    "lip": (255, 110, 140), "mouth": (255, 110, 140), "nose": (255, 240, 150),
    "nostril": (255, 240, 150), "helix": (200, 160, 255), "tragus": (200, 160, 255),
    "crus": (200, 160, 255), "concha": (200, 160, 255), "lobe": (200, 160, 255),
    "between_22": (200, 160, 255),
}  # fmt: skip
_FACE_REST: Colour = (245, 245, 245)
_OUTLINE: Colour = (15, 15, 20)
_BOX: Colour = (255, 255, 255)

# OpenCV draws at a 16th of a pixel.
_SHIFT = 4
# A limb as wide as 1/90 of the person's size reads well from a thumbnail to a full page.
_WIDTH_PER_SIZE = 1 / 90


@dataclass(frozen=True, slots=True)
class DrawnPerson:
    """One person in pixels of the picture that is drawn on.

    Attributes:
        box: (4,) xywh.
        keypoints: (K, 2), NaN where missing; None where the person has no pose.
        scores: (K,).
    """

    box: Array
    keypoints: Array | None = None
    scores: Array | None = None


class Skeleton:
    """How the keypoints of one vocabulary are drawn.

    Args:
        metadata: Metadata of a pose label schema: `keypoints` (names) and `skeleton` (links).
        num_keypoints: Number of keypoints, for vocabularies without names.
    """

    def __init__(self, metadata: Mapping[str, Any], num_keypoints: int) -> None:
        names: Sequence[str] = metadata.get("keypoints") or [""] * num_keypoints
        self._groups = [group_of(name) if name else "body" for name in names]
        self._colours = [_point_colour(name) for name in names]
        links = metadata.get("skeleton") or ()
        self._links = [(a, b, self._link_colour(names, a, b)) for a, b in links]

    def draw(
        self, picture: Array, persons: Sequence[DrawnPerson], *, min_score: float, boxes: bool
    ) -> None:
        """Draw persons on a (h, w, 3) uint8 picture, in place."""
        for person in persons:
            width = float(np.clip(np.sqrt(max(1.0, person.box[2] * person.box[3]))
                                  * _WIDTH_PER_SIZE, 0.9, 9.0))  # fmt: skip
            if boxes:
                _box(picture, person.box, width)
            if person.keypoints is not None and person.scores is not None:
                shown = np.isfinite(person.keypoints).all(axis=1) & (person.scores > min_score)
                self._limbs(picture, person.keypoints, shown, width)
                self._points(picture, person.keypoints, shown, width)

    def _limbs(self, picture: Array, xy: Array, shown: Array, width: float) -> None:
        links = [link for link in self._links if shown[link[0]] and shown[link[1]]]
        hand = {a: self._groups[a].endswith("hand") for a, _, _ in links}
        for outline in (True, False):
            for a, b, colour in links:
                line = width * (0.55 if hand[a] or self._groups[b].endswith("hand") else 1.0)
                thickness = max(1, round(line + (max(1.0, line * 0.7) if outline else 0)))
                ink = _OUTLINE if outline else colour
                cv2.line(picture, _fixed(xy[a]), _fixed(xy[b]), ink, thickness, cv2.LINE_AA, _SHIFT)

    def _points(self, picture: Array, xy: Array, shown: Array, width: float) -> None:
        for index in np.flatnonzero(shown):
            group = self._groups[index]
            radius = width * {"body": 1.1, "face": 0.38, "extra": 0.6}.get(group, 0.6)
            radius = max(0.6, radius)
            if group != "face":
                _dot(picture, xy[index], radius + max(0.5, width * 0.3), _OUTLINE)
            _dot(picture, xy[index], radius, self._colours[index])

    def _link_colour(self, names: Sequence[str], a: int, b: int) -> Colour:
        for end in (b, a):
            if self._groups[end].endswith("hand"):
                return self._colours[end]
        sides = {side_of(names[a]), side_of(names[b])} - {"middle"}
        return SIDE_COLOURS[sides.pop() if len(sides) == 1 else "middle"]


def _point_colour(name: str) -> Colour:
    group = group_of(name)
    if group.endswith("hand"):
        return next(colour for word, colour in FINGER_COLOURS.items() if word in name)
    if group == "face":
        found = (colour for word, colour in FACE_COLOURS.items() if word in name)
        return next(found, _FACE_REST)
    return SIDE_COLOURS[side_of(name)]


def _box(picture: Array, box: Array, width: float) -> None:
    """Corner marks, which hide less of the picture than a frame."""
    x, y, w, h = (float(value) for value in box)
    arm = 0.12 * min(w, h)
    thickness = max(1, round(0.6 * width))
    for cx, dx in ((x, arm), (x + w, -arm)):
        for cy, dy in ((y, arm), (y + h, -arm)):
            corner = np.array([[cx + dx, cy], [cx, cy], [cx, cy + dy]])
            points = np.round(corner * 2**_SHIFT).astype(np.int32)
            for ink, extra in ((_OUTLINE, 2), (_BOX, 0)):
                cv2.polylines(picture, [points], False, ink, thickness + extra, cv2.LINE_AA, _SHIFT)


def _dot(picture: Array, xy: Array, radius: float, colour: Colour) -> None:
    cv2.circle(picture, _fixed(xy), round(radius * 2**_SHIFT), colour, -1, cv2.LINE_AA, _SHIFT)


def _fixed(xy: Array) -> tuple[int, int]:
    # far points would overflow OpenCV's 32 bits
    x, y = np.clip(xy, -(2**14), 2**14) * 2**_SHIFT
    return round(float(x)), round(float(y))
