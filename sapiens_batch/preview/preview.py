"""The contact sheet of a job: an HTML page, optionally PNG files, and a summary for a terminal.

Samples are chosen shard by shard, so that memory is bounded by one shard's rows; the same selection
of the same labels gives the same samples. A sheet holds encoded pictures, drawn one at a time.
A photo that cannot be read again is said to be missing, the labels are shown without it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow.compute as pc
import pyarrow.dataset as ds

from sapiens_batch.errors import InputError, StorageError
from sapiens_batch.labelset import LabelSet
from sapiens_batch.labelset.draw import Place, iter_places, random_places
from sapiens_batch.labelset.filters import Filter, as_expression
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.records import Array, Level, Problem
from sapiens_batch.sheets.cards import Card, make_card
from sapiens_batch.sheets.page import job_facts, write_page
from sapiens_batch.sheets.panels import PanelOptions, sample_panels
from sapiens_batch.sheets.photos import iter_photos
from sapiens_batch.sinks.parquet import column_values


class Order(StrEnum):
    """Which of the samples that a filter leaves come first."""

    RANDOM = "random"
    WORST = "worst"
    STORED = "stored"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which samples are wanted.

    Attributes:
        wanted: Rows of `images`; None for all.
        reasons: Only samples that are quarantined for one of these; a name such as `decode` stands
            for all reasons that begin with `decode.`.
    """

    count: int = 24
    order: Order = Order.RANDOM
    wanted: Filter | None = None
    reasons: tuple[str, ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """One chosen sample.

    Attributes:
        score: Lowest mean keypoint score of its persons, where that ranked it.
    """

    shard_id: str
    index: int
    score: float | None = None


@dataclass(frozen=True, slots=True)
class PreviewOptions:
    """What a preview shows and how; `png_folder` gets every panel as a PNG file too."""

    selection: Selection = field(default_factory=Selection)
    panels: PanelOptions = field(default_factory=PanelOptions)
    png_folder: Path | None = None
    source_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Preview:
    """The page, its cards in order, and shards whose photos could not be read again."""

    page: Path
    cards: tuple[Card, ...]
    problems: tuple[Problem, ...]


def write_preview(manifest: Manifest, page: Path, options: PreviewOptions) -> Preview:
    """Write a contact sheet; an older page is replaced.

    Raises:
        InputError: The selection makes no sense.
        StorageError: The page or a picture cannot be written.
    """
    labels = LabelSet(manifest)
    chosen = choose(labels, options.selection)
    problems: list[Problem] = []
    choices = {(one.shard_id, one.index): one for one in chosen}
    drawn: dict[Place, Card] = {}
    for place, photo in iter_photos(manifest, choices, options.source_options, problems):
        drawn[place] = _card(labels, choices[place], photo, options)
    cards = tuple(drawn[place] for place in choices)
    write_page(
        page,
        "preview.html",
        title=f"{labels.job.name}: preview",
        facts=job_facts(labels),
        cards=cards,
        selection=options.selection,
        problems=problems,
        kinds=_kinds(cards),
    )
    return Preview(page, cards, tuple(problems))


def choose(labels: LabelSet, selection: Selection) -> list[Choice]:
    """The chosen samples, in the order in which they are to be shown.

    Raises:
        InputError: The filter is none, the worst are wanted of a job without poses, or `count` is
            not positive.
    """
    if selection.count < 1:
        raise InputError(f"a sheet shows at least one sample, {selection.count} were asked for")
    wanted = as_expression(selection.wanted, labels.images.schema)
    if selection.reasons:
        quarantined = _reasons(selection.reasons)
        wanted = quarantined if wanted is None else wanted & quarantined
    if selection.order is Order.STORED:
        places = iter_places(labels, wanted)
        return [Choice(*place) for place in islice(places, selection.count)]
    if selection.order is Order.WORST:
        worst = heapq.nsmallest(selection.count, _scored(labels, wanted))
        return [Choice(shard_id, index, score) for score, shard_id, index in worst]
    drawn = random_places(labels, selection.count, selection.seed, wanted)
    return [Choice(*place) for place in drawn]


def _reasons(reasons: Sequence[str]) -> ds.Expression:
    found = ds.scalar(False)
    for reason in reasons:
        begins: ds.Expression = pc.starts_with(ds.field("reason"), pattern=f"{reason}.")
        found = found | (ds.field("reason") == reason) | begins
    return found


def _scored(labels: LabelSet, wanted: ds.Expression | None) -> Iterator[tuple[float, str, int]]:
    """(score, shard_id, index) of the wanted samples with a labeled person."""
    if "pose" not in labels.schemas:
        raise InputError(
            f"job {labels.job.name!r} has no task `pose`, whose scores say which samples are "
            "worst; choose at random or by filter"
        )
    for shard_id in labels.shard_ids(wanted):
        kept = labels.shard_rows(shard_id, Level.IMAGE, wanted, ["index"])["index"].to_numpy()
        rows = labels.shard_rows(
            shard_id, Level.PERSON, ds.field("index").isin(kept), ["index", "keypoint_scores"]
        )
        scores, present = column_values(rows["keypoint_scores"])
        owners = rows["index"].to_numpy()[present]
        means = scores[present].mean(axis=1)
        for index in np.unique(owners):
            yield float(means[owners == index].min()), shard_id, int(index)


def _card(labels: LabelSet, choice: Choice, photo: Array | None, options: PreviewOptions) -> Card:
    sample = labels.sample_at(choice.shard_id, choice.index)
    panels = list(sample_panels(sample, photo, options.panels))
    if options.png_folder is not None:
        for panel in panels:
            name = f"{choice.shard_id[:8]}-{choice.index:06d}-{panel.kind}.png"
            _write_png(options.png_folder / name, panel.picture)
    note = "" if choice.score is None else f"lowest mean score {choice.score:.2f}"
    return make_card(sample, labels.shards[choice.shard_id].shard_key, panels, note=note)


def _kinds(cards: Sequence[Card]) -> list[tuple[str, str]]:
    """(kind, title) of the panels on the sheet, in the order of the card that has most."""
    by_size = sorted(cards, key=lambda card: -len(card.pictures))
    return list(dict.fromkeys((one.kind, one.title) for card in by_size for one in card.pictures))


def _write_png(path: Path, picture: Array) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(cv2.imencode(".png", picture[..., ::-1])[1].tobytes())
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error}") from error
