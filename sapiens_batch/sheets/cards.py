"""What a sheet says about one sample beside its pictures: state, persons, scores, classes.

A card is plain values that the templates turn into markup; its pictures are encoded already, so
that a sheet of many cards holds no pixels.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import cv2
import numpy as np

from sapiens_batch.labelset import SampleLabels
from sapiens_batch.sheets.groups import keypoint_groups
from sapiens_batch.sheets.panels import Panel

# Fast to write and small; full colour resolution keeps thin coloured lines crisp.
_JPEG: Final = (
    cv2.IMWRITE_JPEG_QUALITY, 86,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
)  # fmt: skip
# Below this share a class is a stray pixel and would only lengthen the legend.
_MIN_CLASS_SHARE: Final = 0.002
_SHOWN_PERSONS: Final = 6


@dataclass(frozen=True, slots=True)
class CardPicture:
    """An encoded panel, see `Panel`: its size in pixels, and the picture as a data URI."""

    kind: str
    title: str
    note: str
    width: int
    height: int
    uri: str


@dataclass(frozen=True, slots=True)
class CardPerson:
    """One person of a card, with the mean keypoint score of each group."""

    number: int
    bbox_score: float | None
    scores: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class CardClass:
    """One class of a card's part mask: its name, its CSS colour, its share of the image."""

    name: str
    colour: str
    share: float


@dataclass(frozen=True, slots=True)
class Card:
    """One sample on a sheet.

    Attributes:
        shard: Source-relative name of its shard.
        reason: Why it is quarantined, else empty.
        message: The same in words.
        size: Source size as `width × height`, or empty.
        num_persons: Rows in `persons`.
        persons: The first few persons.
        classes: Classes of the part mask, largest first.
        note: What this card is on the sheet for, for example a distance; empty for none.
    """

    key: str
    shard: str
    index: int
    status: str
    reason: str
    message: str
    size: str
    num_persons: int
    persons: tuple[CardPerson, ...]
    classes: tuple[CardClass, ...]
    pictures: tuple[CardPicture, ...]
    note: str = ""


def make_card(sample: SampleLabels, shard: str, panels: Iterable[Panel], *, note: str = "") -> Card:
    """The card of a sample, see `Card`; shows as many panels as it is given."""
    row = sample.row
    size = (
        "" if row["height"] is None else f"{row['width']} \N{MULTIPLICATION SIGN} {row['height']}"
    )
    return Card(
        key=row["key"],
        shard=shard,
        index=int(row["index"]),
        status=row["status"],
        reason=row["reason"] or "",
        message=row["message"] or "",
        size=size,
        num_persons=int(row["num_persons"]),
        persons=tuple(person_of(one, sample) for one in sample.persons[:_SHOWN_PERSONS]),
        classes=classes_of(sample),
        pictures=tuple(encode_panel(panel) for panel in panels),
        note=note,
    )


def encode_panel(panel: Panel) -> CardPicture:
    """A panel as a data URI."""
    height, width = panel.picture.shape[:2]
    data = cv2.imencode(".jpg", panel.picture[..., ::-1], _JPEG)[1]
    uri = "data:image/jpeg;base64," + base64.b64encode(data.tobytes()).decode()
    return CardPicture(panel.kind, panel.title, panel.note, width, height, uri)


def person_of(person: Mapping[str, Any], sample: SampleLabels) -> CardPerson:
    """What a card says about a person."""
    schema = sample.schemas.get("pose")
    scores: dict[str, float] = {}
    if schema is not None and person.get("keypoint_scores") is not None:
        values = np.asarray(person["keypoint_scores"])
        names = schema.metadata.get("keypoints")
        groups = keypoint_groups(names) if names else {"all": list(range(len(values)))}
        scores = {group: float(values[indices].mean()) for group, indices in groups.items()}
    score = person["bbox_score"]
    return CardPerson(int(person["person"]), None if score is None else float(score), scores)


def classes_of(sample: SampleLabels) -> tuple[CardClass, ...]:
    """The classes of a sample's part mask, largest first, the background left out."""
    schema, pixels = sample.schemas.get("seg"), sample.row.get("seg_class_pixels")
    if schema is None or pixels is None or sample.row["status"] == "quarantined":
        return ()
    names, palette = schema.metadata.get("classes"), schema.metadata.get("palette_rgb")
    if not names or not palette:
        return ()
    shares = np.asarray(pixels) / max(1, sum(pixels))
    found = [number for number in np.argsort(-shares) if shares[number] >= _MIN_CLASS_SHARE]
    return tuple(
        CardClass(
            names[number].replace("_", " "), css_colour(palette[number]), float(shares[number])
        )
        for number in found
        if number != 0
    )


def css_colour(rgb: Iterable[int]) -> str:
    """An RGB colour as CSS writes it."""
    return "#" + "".join(f"{value:02x}" for value in rgb)
