"""The contact sheet of a job: an HTML page, optionally PNG files, and a summary for a terminal.

Samples are drawn one at a time; a sheet holds their encoded pictures. A photo that cannot be read
again is left out and said to be missing, the labels are shown without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2

from sapiens_batch.errors import StorageError
from sapiens_batch.labelset import LabelSet
from sapiens_batch.labelset.draw import Place
from sapiens_batch.preview.choose import Choice, Selection, choose
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.records import Array, Problem
from sapiens_batch.sheets.cards import Card, make_card
from sapiens_batch.sheets.legend import make_legend
from sapiens_batch.sheets.page import job_facts, write_page
from sapiens_batch.sheets.panels import PanelOptions, sample_panels
from sapiens_batch.sheets.photos import iter_photos


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
        legend=make_legend(),
        cards=cards,
        selection=options.selection,
        problems=problems,
        kinds=_kinds(cards),
    )
    return Preview(page, cards, tuple(problems))


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
