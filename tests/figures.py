"""Drawn people: keypoints and dense labels that fit the bundled photos, without any model.

A figure is a face ellipse and a few joints, set by eye. Everything else follows from it, so that a
sheet of such labels looks like labels and a test can say what it expects where.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from sapiens_batch.records import Affine, Array

Point = tuple[float, float]

HAIR, FACE, LOWER_CLOTHING, UPPER_CLOTHING, LOWER_LIP, UPPER_LIP = 4, 3, 13, 23, 24, 25
LEFT_HAND, RIGHT_HAND = 6, 15
FACE_HALF_HEIGHT_M = 0.12
CAMERA_DISTANCE_M = 2.0


def _map(affine: Affine, point: Point) -> Point:
    x, y = affine.apply(np.array(point))
    return float(x), float(y)


@dataclass(frozen=True)
class Figure:
    """One person of a photo, in pixels of the photo.

    Attributes:
        box: COCO xywh.
        face: Centre x, centre y, half width, half height of the face.
        joints: Shoulders, elbows, wrists, hips, knees and ankles by name.
    """

    box: tuple[float, float, float, float]
    face: tuple[float, float, float, float]
    joints: Mapping[str, Point]

    def moved(self, to_sample: Affine) -> Figure:
        """The same person after scaling and shifting the photo."""
        points = {name: _map(to_sample, point) for name, point in self.joints.items()}
        left, top = _map(to_sample, self.box[:2])
        x, y = _map(to_sample, self.face[:2])
        sx, sy = to_sample.scale_x, to_sample.scale_y
        return Figure(
            (left, top, self.box[2] * sx, self.box[3] * sy),
            (x, y, self.face[2] * sx, self.face[3] * sy),
            points,
        )


def _joints(right: Sequence[Point], left: Sequence[Point]) -> dict[str, Point]:
    names = ("shoulder", "elbow", "wrist", "hip", "knee", "ankle")
    sides = {"right": right, "left": left}
    return {
        f"{side}_{name}": point
        for side, points in sides.items()
        for name, point in zip(names, points, strict=True)
    }


_ASTRONAUT = Figure(
    (9.4, 7.6, 359.5, 504.4),
    (226, 112, 50, 66),
    _joints(
        [(78, 250), (50, 400), (170, 560), (120, 560), (120, 760), (120, 940)],
        [(325, 250), (360, 390), (300, 560), (280, 560), (280, 760), (280, 940)],
    ),
)
FIGURES: Mapping[str, tuple[Figure, ...]] = {
    "astronaut": (_ASTRONAUT,),
    "photographer": (
        Figure(
            (0, 63, 345, 449),
            (222, 132, 34, 54),
            _joints(
                [(90, 160), (62, 290), (190, 232), (75, 390), (85, 500), (90, 640)],
                [(160, 200), (215, 290), (285, 205), (130, 390), (140, 520), (140, 640)],
            ),
        ),
    ),
    "portraits": (
        Figure(
            (0, 14, 320, 411),
            (172, 160, 60, 78),
            _joints(
                [(40, 285), (10, 430), (60, 560), (80, 560), (80, 700), (80, 900)],
                [(290, 285), (318, 430), (260, 560), (250, 560), (250, 700), (250, 900)],
            ),
        ),
        _ASTRONAUT.moved(Affine(0.83, 0.83, 279.0, 0.5)),
    ),
    "cat": (),
}

# Where groups of face points lie: centre and radii in face half sizes, degrees from and to
# (0 to the person's left, 90 down); points are spread in the order of their names.
_ARCS: tuple[tuple[str, tuple[float, float, float, float, float, float]], ...] = (
    ("center_of_(iris|pupil)", (0.42, -0.15, 0, 0, 0, 0)),
    ("border_of_iris", (0.42, -0.15, 0.06, 0.07, 0, 315)),
    ("border_of_pupil", (0.42, -0.15, 0.025, 0.03, 0, 315)),
    ("upper_lash", (0.42, -0.15, 0.18, 0.07, 180, 360)),
    ("upper_eyelid", (0.42, -0.15, 0.2, 0.12, 190, 350)),
    ("upper_crease", (0.42, -0.15, 0.22, 0.17, 200, 340)),
    ("lower_lash", (0.42, -0.15, 0.18, 0.07, 180, 0)),
    ("lower_eyelid", (0.42, -0.15, 0.2, 0.12, 170, 10)),
    ("eyebrow", (0.42, -0.32, 0.26, 0.12, 180, 360)),
    ("nostril", (0.12, 0.3, 0.07, 0.04, 0, 240)),
    ("outer_corner_of_nose", (0.2, 0.27, 0, 0, 0, 0)),
    ("corner_of_mouth", (0.3, 0.52, 0, 0, 0, 0)),
    ("(antihelix|crus|helix|tragus|antitragus|concha|lobe|between_22)",
     (1.05, 0.0, 0.08, 0.24, 0, 345)),
    ("upper_outer_lip|cupid", (0, 0.5, 0.28, 0.1, 190, 350)),
    ("lower_outer_lip", (0, 0.54, 0.28, 0.14, 170, 10)),
    ("upper_inner_lip", (0, 0.52, 0.22, 0.04, 190, 350)),
    ("lower_inner_lip", (0, 0.52, 0.22, 0.05, 170, 10)),
    ("^(nose|tip_of_nose)$", (0, 0.2, 0, 0, 0, 0)),
    ("^(left|right)_eye$", (0.42, -0.15, 0, 0, 0, 0)),
    ("^(left|right)_ear$", (1.02, 0.0, 0, 0, 0, 0)),
    ("(glabella|nose_root|nose_bridge)", (0, -0.1, 0, 0.22, 270, 450)),
    ("bottom_center_of_nose", (0, 0.33, 0, 0, 0, 0)),
    ("labiomental", (0, 0.76, 0, 0, 0, 0)),
    ("chin", (0, 1.0, 0, 0, 0, 0)),
)  # fmt: skip
_FINGERS = ("thumb", "forefinger", "middle_finger", "ring_finger", "pinky_finger")
_KNUCKLES = ("third_joint", "2", "3", "4")


def keypoints(figure: Figure, names: Sequence[str]) -> Array:
    """(K, 2) float64 positions of named keypoints."""
    groups = [_group(name) for name in names]
    totals = Counter(groups)
    seen: Counter[tuple[str, int]] = Counter()
    points = np.zeros((len(names), 2))
    for row, (name, group) in enumerate(zip(names, groups, strict=True)):
        share = seen[group] / max(1, totals[group] - 1)
        seen[group] += 1
        points[row] = _place(figure, name, group, share)
    return points


def _side(name: str) -> int:
    """1 for the person's left, which is right in the picture; -1 for right; 0 for neither."""
    if re.search(r"(^|_)(l|left)_", name):
        return 1
    return -1 if re.search(r"(^|_)(r|right)_", name) else 0


def _group(name: str) -> tuple[str, int]:
    pattern = next((pattern for pattern, _ in _ARCS if re.search(pattern, name)), "")
    return pattern, _side(name)


def _place(figure: Figure, name: str, group: tuple[str, int], share: float) -> Point:
    pattern, side = group
    if not pattern:
        return _body(figure, name)
    u, v, ru, rv, start, stop = dict(_ARCS)[pattern]
    angle = np.radians(start + share * (stop - start))
    x, y, half_width, half_height = figure.face
    across = (u + ru * np.cos(angle)) * (side or 1)
    return x + half_width * across, y + half_height * (v + rv * np.sin(angle))


def _body(figure: Figure, name: str) -> Point:
    joints = figure.joints
    if name in joints:
        return joints[name]
    if name == "neck":
        x, y, _, half_height = figure.face
        return x, y + 1.45 * half_height
    side = "left" if _side(name) > 0 else "right"
    unit = figure.face[2]
    for word, joint, dx, dy in (
        ("olecranon", "elbow", -0.2, 0.1), ("cubital", "elbow", 0.2, -0.1),
        ("acromion", "shoulder", 0.0, -0.15), ("big_toe", "ankle", 0.5, 0.5),
        ("small_toe", "ankle", 0.7, 0.5), ("heel", "ankle", -0.2, 0.4),
    ):  # fmt: skip
        if word in name:
            x, y = joints[f"{side}_{joint}"]
            return x + dx * unit, y + dy * unit
    return _finger(figure, name, side)


def _finger(figure: Figure, name: str, side: str) -> Point:
    wrist, elbow = joints_pair(figure, side)
    finger = next(i for i, word in enumerate(_FINGERS) if word in name)
    knuckle = next(i for i, word in enumerate(_KNUCKLES) if name.endswith(word))
    along = np.arctan2(wrist[1] - elbow[1], wrist[0] - elbow[0])
    angle = along + np.radians((finger - 2) * (-18 if side == "left" else 18))
    reach = figure.face[2] * (0.55 + 0.28 * knuckle) * (0.8 if finger == 0 else 1.0)
    return wrist[0] + reach * np.cos(angle), wrist[1] + reach * np.sin(angle)


def joints_pair(figure: Figure, side: str) -> tuple[Point, Point]:
    """Wrist and elbow of a side."""
    return figure.joints[f"{side}_wrist"], figure.joints[f"{side}_elbow"]


def class_mask(figures: Sequence[Figure], size: tuple[int, int]) -> Array:
    """(height, width) uint8 classes of the 29, for figures in pixels of the same grid."""
    mask = np.zeros(size, np.uint8)
    for figure in figures:
        _paint(mask, figure)
    return mask


def _paint(mask: Array, figure: Figure) -> None:
    joints = figure.joints
    x, y, rx, ry = figure.face
    limb = max(1, round(rx * 1.1))
    for side, hand in (("right", RIGHT_HAND), ("left", LEFT_HAND)):
        legs = [joints[f"{side}_{name}"] for name in ("hip", "knee", "ankle")]
        arms = [joints[f"{side}_{name}"] for name in ("shoulder", "elbow", "wrist")]
        cv2.polylines(mask, [_whole(legs)], False, LOWER_CLOTHING, limb)
        cv2.circle(mask, _pixel(joints[f"{side}_wrist"]), round(rx * 0.7), hand, -1)
        cv2.polylines(mask, [_whole(arms)], False, UPPER_CLOTHING, limb)
    torso = [joints[f"{name}"] for name in
             ("right_shoulder", "left_shoulder", "left_hip", "right_hip")]  # fmt: skip
    neck = [(x - 0.5 * rx, y), (x + 0.5 * rx, y), (x + 0.8 * rx, y + 1.6 * ry),
            (x - 0.8 * rx, y + 1.6 * ry)]  # fmt: skip
    cv2.fillPoly(mask, [_whole(torso)], UPPER_CLOTHING)
    cv2.fillPoly(mask, [_whole(neck)], FACE)
    _ellipse(mask, (x, y - 0.45 * ry, 1.4 * rx, 1.05 * ry), HAIR)
    _ellipse(mask, figure.face, FACE)
    _ellipse(mask, (x, y + 0.49 * ry, 0.28 * rx, 0.08 * ry), UPPER_LIP)
    _ellipse(mask, (x, y + 0.57 * ry, 0.25 * rx, 0.08 * ry), LOWER_LIP)


def relief(mask: Array) -> Array:
    """(height, width) float32 height of the surface towards the viewer, in pixels of the grid."""
    height = np.zeros(mask.shape, np.float32)
    head = np.isin(mask, (FACE, HAIR, UPPER_LIP, LOWER_LIP))
    for part, share in ((mask > 0, 1 / 9), (head, 1 / 11)):
        reach = share * max(mask.shape)
        if part.any():
            inside = cv2.distanceTransform(part.astype(np.uint8), cv2.DIST_L2, 5)
            inside = np.minimum(inside, reach)
            height += 0.7 * np.sqrt(np.maximum(0, inside * (2 * reach - inside)))
    return cv2.GaussianBlur(height, (0, 0), max(1.0, max(mask.shape) / 90))


def normals(height: Array) -> Array:
    """(3, height, width) float32 unit normals: x right, y up, z towards the viewer."""
    down, across = np.gradient(height)
    vectors = np.stack([-across, down, np.ones_like(height)])
    unit: Array = vectors / np.linalg.norm(vectors, axis=0)
    return unit


def points(mask: Array, height: Array, pixel_m: float) -> Array:
    """(3, height, width) float32 metric points, one pixel being `pixel_m` wide at the person."""
    rows, columns = np.indices(mask.shape, dtype=np.float32)
    wall = CAMERA_DISTANCE_M + 1.5 - 0.4 * rows / mask.shape[0]
    z = np.where(mask > 0, CAMERA_DISTANCE_M - height * pixel_m, wall)
    x = (columns - mask.shape[1] / 2) * pixel_m * z / CAMERA_DISTANCE_M
    y = (rows - mask.shape[0] / 2) * pixel_m * z / CAMERA_DISTANCE_M
    return np.stack([x, y, z]).astype(np.float32)


def _pixel(point: Point) -> tuple[int, int]:
    return round(point[0]), round(point[1])


def _whole(points: Sequence[Point]) -> Array:
    rounded: Array = np.array([_pixel(point) for point in points], np.int32)
    return rounded


def _ellipse(mask: Array, shape: tuple[float, float, float, float], value: int) -> None:
    x, y, rx, ry = shape
    cv2.ellipse(mask, _pixel((x, y)), (max(0, round(rx)), max(0, round(ry))), 0, 0, 360, value, -1)
