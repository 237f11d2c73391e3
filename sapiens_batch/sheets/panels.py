"""The pictures of one sample: its photo and each of its labels, at the size of a sheet.

Every label is brought from its frame straight to the panel's pixels, so that a panel shows what is
stored and nothing that was resampled twice. Markup is left to `cards` and the templates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np

from sapiens_batch.images.geometry import stretch_map
from sapiens_batch.labelset import SampleLabels
from sapiens_batch.labelset.sample import Row
from sapiens_batch.records import NO_CLASS, Affine, Array
from sapiens_batch.sheets import maps
from sapiens_batch.sheets.groups import GroupName, keypoint_groups
from sapiens_batch.sheets.skeleton import DrawnPerson, Skeleton

Box = tuple[int, int, int, int]

CLOSEUPS: Final[tuple[tuple[GroupName, str], ...]] = (
    ("face", "Face"), ("left_hand", "Left hand"), ("right_hand", "Right hand"),
)  # fmt: skip
# A close-up needs this share of a group's points, and is of no use where the group fills the photo.
_CLOSEUP_SHARE: Final = 0.5
_CLOSEUP_MAX_FRACTION: Final = 0.6


@dataclass(frozen=True, slots=True)
class PanelOptions:
    """How panels are drawn.

    Attributes:
        side: Longest side of a panel, px.
        min_score: Keypoints with this score or less are left out.
        kinds: Kinds of panels that are drawn; None for all.
    """

    side: int = 480
    min_score: float = 0.3
    kinds: frozenset[str] | None = None

    def wants(self, kind: str) -> bool:
        """Whether panels of a kind are drawn."""
        return self.kinds is None or kind in self.kinds


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture.

    Attributes:
        kind: `photo`, a task, or a group of keypoints; file names follow it.
        picture: (h, w, 3) uint8 RGB.
        note: What a reader of the picture needs to know, for example the range of depths.
    """

    kind: str
    title: str
    picture: Array
    note: str = ""


def sample_panels(
    sample: SampleLabels, photo: Array | None, options: PanelOptions
) -> Iterator[Panel]:
    """The photo and the labels of a sample, in a fixed order; labels that it lacks are left out.

    Args:
        sample: The sample.
        photo: (height, width, 3) uint8 in source pixels, upright, or None where it is gone.
        options: How to draw.
    """
    size = _source_size(sample, photo)
    if size is None:
        return
    drawing = _Drawing(sample, photo, size, options)
    if photo is not None and options.wants("photo"):
        yield Panel("photo", "Photo", drawing.backdrop())
    if sample.row["status"] == "quarantined":
        return
    yield from drawing.pose()
    for task, schema in sample.schemas.items():
        if schema.array is not None and options.wants(task):
            panel = drawing.dense(task)
            if panel is not None:
                yield panel


def _source_size(sample: SampleLabels, photo: Array | None) -> tuple[int, int] | None:
    if sample.row["height"] is not None:
        return int(sample.row["height"]), int(sample.row["width"])
    return None if photo is None else (photo.shape[0], photo.shape[1])


class _Drawing:
    """Draws one sample on panels of one size."""

    def __init__(
        self,
        sample: SampleLabels,
        photo: Array | None,
        size: tuple[int, int],
        options: PanelOptions,
    ) -> None:
        self._sample = sample
        self._photo = photo
        self._source_size = size
        self._options = options
        self._size = fitted(size, options.side)

    def backdrop(self) -> Array:
        """The photo at panel size, or plain ground where it is gone; a copy to draw on."""
        if self._photo is None:
            return maps.ground(self._size)
        return resized(self._photo, self._size)

    def pose(self) -> Iterator[Panel]:
        """Skeletons over the photo, then close-ups of the person that is seen best."""
        schema = self._sample.schemas.get("pose")
        if schema is None or not self._sample.persons:
            return
        num_keypoints = schema.columns[0].shape[0]
        skeleton = Skeleton(schema.metadata, num_keypoints)
        picture = self.backdrop()
        to_panel = stretch_map(self._size, self._source_size)
        persons = [self._person(row, to_panel) for row in self._sample.persons]
        skeleton.draw(picture, persons, min_score=self._options.min_score, boxes=True)
        shown = sum(_num_shown(one, self._options.min_score) for one in persons)
        note = f"{shown} of {num_keypoints * len(persons)} points"
        if self._options.wants("pose"):
            yield Panel("pose", "Pose", picture, note)
        names = schema.metadata.get("keypoints")
        if names and self._photo is not None:
            yield from self._closeups(skeleton, keypoint_groups(names))

    def _closeups(self, skeleton: Skeleton, groups: dict[GroupName, list[int]]) -> Iterator[Panel]:
        for group, title in CLOSEUPS:
            wanted = groups.get(group, []) if self._options.wants(group) else []
            found = self._best_crop(wanted)
            if found is not None and self._photo is not None:
                row, (left, top, right, bottom) = found
                crop = self._photo[top:bottom, left:right]
                scale = self._options.side / max(crop.shape[:2])
                picture = resized(crop, fitted(crop.shape[:2], self._options.side))
                moved = Affine(scale, scale, (0.5 - left) * scale - 0.5, (0.5 - top) * scale - 0.5)
                person = self._person(row, moved)
                skeleton.draw(picture, [person], min_score=self._options.min_score, boxes=False)
                yield Panel(group, title, picture)

    def _best_crop(self, points: Sequence[int]) -> tuple[Row, Box] | None:
        """The person whose points are seen best, and (left, top, right, bottom) around them."""
        best: tuple[float, Row, Box] | None = None
        for person in self._sample.persons:
            if person.get("keypoints") is None or not points:
                continue
            xy, scores = person["keypoints"][points], person["keypoint_scores"][points]
            shown = np.isfinite(xy).all(axis=1) & (scores > self._options.min_score)
            if shown.mean() < _CLOSEUP_SHARE:
                continue
            crop = _square_around(xy[shown], self._source_size)
            fraction = max(crop[2] - crop[0], crop[3] - crop[1]) / max(self._source_size)
            if fraction < _CLOSEUP_MAX_FRACTION and (best is None or scores.mean() > best[0]):
                best = (float(scores.mean()), person, crop)
        return None if best is None else best[1:]

    def _person(self, person: Row, to_picture: Affine) -> DrawnPerson:
        box = np.asarray(person["bbox"], np.float64)
        left, top = to_picture.apply(box[:2])
        moved = np.array([left, top, box[2] * to_picture.scale_x, box[3] * to_picture.scale_y])
        if person.get("keypoints") is None:
            return DrawnPerson(moved)
        return DrawnPerson(moved, to_picture.apply(person["keypoints"]), person["keypoint_scores"])

    def dense(self, task: str) -> Panel | None:
        """The array of a task as a picture, or None where there is none to show."""
        values = self._sample.to_source(task, size=self._size)
        if values is None:
            return None
        metadata = self._sample.schemas[task].metadata
        photo = self.backdrop() if self._photo is not None else None
        if task == "seg":
            palette = np.array(metadata.get("palette_rgb") or _grey_levels(), np.uint8)
            return Panel(task, "Parts", maps.mask_picture(values, palette, photo))
        if task == "normal":
            return Panel(task, "Normals", maps.normal_picture(values))
        if task in ("pointmap", "depth"):
            return self._depth(task, values[2] if values.ndim == 3 else values)
        if task == "matting":
            return Panel(task, "Matte", maps.matte_picture(values, photo))
        if task == "albedo":
            return Panel(task, "Albedo", maps.albedo_picture(values))
        return None

    def _depth(self, task: str, depth: Array) -> Panel | None:
        has_mask = "seg" in self._sample.schemas
        mask = self._sample.to_source("seg", size=self._size) if has_mask else None
        persons = None if mask is None else (mask != 0) & (mask != NO_CLASS)
        limits = maps.depth_range(depth, persons)
        if limits is None:
            return None
        note = f"{limits[0]:.2f} to {limits[1]:.2f} m"
        return Panel(task, "Depth", maps.depth_picture(depth, limits), note)


def _num_shown(person: DrawnPerson, min_score: float) -> int:
    if person.keypoints is None or person.scores is None:
        return 0
    finite = np.isfinite(person.keypoints).all(axis=1)
    return int((finite & (person.scores > min_score)).sum())


def _square_around(xy: Array, size: tuple[int, int]) -> Box:
    """(left, top, right, bottom) of a square around points with a margin, inside the picture."""
    low, high = xy.min(axis=0), xy.max(axis=0)
    half = max(16.0, 0.65 * float((high - low).max()))
    centre = (low + high) / 2
    left, top = (max(0, int(value)) for value in centre - half)
    right, bottom = (int(value) + 1 for value in centre + half)
    right, bottom = min(size[1], right), min(size[0], bottom)
    return left, top, max(left + 1, right), max(top + 1, bottom)


def fitted(size: tuple[int, int], side: int) -> tuple[int, int]:
    """(height, width) of a picture whose longer side is made `side`."""
    scale = side / max(size)
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def resized(picture: Array, size: tuple[int, int]) -> Array:
    """A picture at another (height, width)."""
    shrinks = size[0] < picture.shape[0]
    interpolation = cv2.INTER_AREA if shrinks else cv2.INTER_CUBIC
    scaled: Array = cv2.resize(picture, size[::-1], interpolation=interpolation)
    return scaled


def _grey_levels() -> list[list[int]]:
    return [[value, value, value] for value in range(256)]
