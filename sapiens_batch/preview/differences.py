"""The sheet of what differs most between two jobs: both labels and a map of the difference.

The numbers come from `compare`. Samples are drawn one at a time, each once for every measure that
it is among the worst of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from sapiens_batch.labelset import LabelSet, SampleLabels
from sapiens_batch.labelset.draw import Place
from sapiens_batch.preview.compare import Comparison, Difference
from sapiens_batch.preview.measure import (
    MEASURES,
    angles,
    matched_persons,
    paired_maps,
)
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.records import Array, Problem
from sapiens_batch.sheets import maps
from sapiens_batch.sheets.cards import Card, CardPicture, encode_panel, make_card
from sapiens_batch.sheets.page import job_facts, write_page
from sapiens_batch.sheets.panels import Panel, PanelOptions, fitted, resized, sample_panels
from sapiens_batch.sheets.photos import iter_photos

# One measure for each kind of label; the numbers of all are in the table.
_SHOWN = ("keypoint_relative", "mask_iou", "normal_degrees", "depth_relative")
_FIRST, _SECOND = (90, 230, 110), (255, 110, 220)
# Errors from here on are drawn as brightly as they get.
_FULL_DEGREES = 30.0
_FULL_DEPTH = 0.1


@dataclass(frozen=True, slots=True)
class DifferenceCard:
    """One sample on the sheet: the card of the first job's labels, and the pictures."""

    card: Card
    first: tuple[CardPicture, ...]
    second: tuple[CardPicture, ...]
    difference: tuple[CardPicture, ...]


def write_differences(
    first: Manifest,
    second: Manifest,
    comparison: Comparison,
    page: Path,
    *,
    panels: PanelOptions,
    source_options: Mapping[str, Any],
) -> list[Problem]:
    """Write the sheet; returns shards whose photos could not be read again.

    Photos come from the first job's source; an older page is replaced.

    Raises:
        StorageError: The page cannot be written.
    """
    labels = LabelSet(first), LabelSet(second)
    drawn: dict[tuple[str, Difference], DifferenceCard] = {}
    wanted: dict[Place, list[tuple[str, Difference]]] = {}
    for name in _SHOWN:
        for one in comparison.worst.get(name, ()):
            wanted.setdefault(one.first, []).append((name, one))
    problems: list[Problem] = []
    for place, photo in iter_photos(first, wanted, source_options, problems):
        for name, one in wanted[place]:
            pair = labels[0].sample_at(*place), labels[1].sample_at(*one.second)
            shard = labels[0].shards[place[0]].shard_key
            drawn[name, one] = _card(name, one, pair, shard, photo, panels)
    write_page(
        page,
        "compare.html",
        title=f"{comparison.first} and {comparison.second}: differences",
        comparison=comparison,
        measures=MEASURES,
        sections=[
            (MEASURES[name], [drawn[name, one] for one in comparison.worst[name]])
            for name in _SHOWN
            if comparison.worst.get(name)
        ],
        facts=job_facts(labels[0]),
        demo=any(job_facts(one).demo for one in labels),
        problems=problems,
    )
    return problems


def _card(
    name: str,
    difference: Difference,
    pair: tuple[SampleLabels, SampleLabels],
    shard: str,
    photo: Array | None,
    options: PanelOptions,
) -> DifferenceCard:
    measure = MEASURES[name]
    only = replace(options, kinds=frozenset({measure.kind}))
    shown = [
        tuple(encode_panel(panel) for panel in sample_panels(sample, photo, only))
        for sample in pair
    ]
    apart = _difference(measure.kind, *pair, photo, options)
    note = f"{difference.value:.3g} {measure.unit}".strip()
    card = make_card(pair[0], shard, (), note=note)
    return DifferenceCard(card, shown[0], shown[1], () if apart is None else (encode_panel(apart),))


def _difference(
    kind: str,
    first: SampleLabels,
    second: SampleLabels,
    photo: Array | None,
    options: PanelOptions,
) -> Panel | None:
    if kind == "pose":
        return _pose_difference(first, second, photo, options)
    found = paired_maps(first, second, kind) if kind in first.schemas else None
    if found is None:
        return None
    mine, other = found
    if kind == "seg":
        differs = (mine != other).astype(np.float32)
        return _heat(differs, "where classes differ", first, options)
    if kind == "normal":
        note = f"bright from {_FULL_DEGREES:.0f}°"
        return _heat(angles(mine, other) / _FULL_DEGREES, note, first, options)
    a, b = (one[2] if one.ndim == 3 else one for one in found)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.abs(a.astype(np.float32) - b.astype(np.float32)) / a.astype(np.float32)
    return _heat(error / _FULL_DEPTH, f"bright from {_FULL_DEPTH:.0%} of depth", first, options)


def _heat(share: Array, note: str, sample: SampleLabels, options: PanelOptions) -> Panel:
    """A map (h, w) of shares of the full brightness; no label shows as ground."""
    finite = np.isfinite(share)
    coded = np.round(np.clip(np.nan_to_num(share), 0, 1) * 255).astype(np.uint8)
    picture = cv2.applyColorMap(coded, cv2.COLORMAP_MAGMA)[..., ::-1]
    picture = np.where(finite[..., None], picture, maps.ground(share.shape))
    size = fitted((sample.row["height"], sample.row["width"]), options.side)
    picture = cv2.resize(picture, size[::-1], interpolation=cv2.INTER_NEAREST)
    return Panel("difference", "Difference", picture, note)


def _pose_difference(
    first: SampleLabels, second: SampleLabels, photo: Array | None, options: PanelOptions
) -> Panel | None:
    """Keypoints of both jobs, each joined with its counterpart."""
    source = (first.row["height"], first.row["width"])
    size, scale = fitted(source, options.side), options.side / max(source)
    shown = maps.ground(size) if photo is None else resized(photo, size) * 0.45
    picture = shown.astype(np.uint8)
    for mine, other in matched_persons(first, second):
        a, b = first.persons[mine], second.persons[other]
        both = np.minimum(a["keypoint_scores"], b["keypoint_scores"]) > options.min_score
        both &= np.isfinite(a["keypoints"]).all(axis=1) & np.isfinite(b["keypoints"]).all(axis=1)
        for start, stop in zip(a["keypoints"][both], b["keypoints"][both], strict=True):
            ends = [
                tuple(round(float(v)) for v in ((xy + 0.5) * scale - 0.5) * 16)
                for xy in (start, stop)
            ]
            cv2.line(picture, ends[0], ends[1], (235, 235, 235), 1, cv2.LINE_AA, 4)
            cv2.circle(picture, ends[0], 28, _FIRST, -1, cv2.LINE_AA, 4)
            cv2.circle(picture, ends[1], 28, _SECOND, -1, cv2.LINE_AA, 4)
    return Panel("difference", "Difference", picture, "green to pink: first to second job")
