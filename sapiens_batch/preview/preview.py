"""The contact sheet of a job: an HTML page, optionally PNG files, and a summary for a terminal.

Samples are drawn one at a time; a sheet holds their encoded pictures. A photo that cannot be read
again is left out and said to be missing, the labels are shown without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2

from sapiens_batch.errors import StorageError
from sapiens_batch.labelset import LabelSet
from sapiens_batch.preview.choose import Choice, Selection, choose
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.records import Problem, Shard
from sapiens_batch.sheets.cards import Card, decode_photo, make_card
from sapiens_batch.sheets.legend import make_legend
from sapiens_batch.sheets.page import job_facts, write_page
from sapiens_batch.sheets.panels import PanelOptions, sample_panels
from sapiens_batch.sources.lookup import iter_encoded


@dataclass(frozen=True, slots=True)
class PreviewOptions:
    """What a preview shows and how.

    Attributes:
        selection: Which samples.
        panels: How they are drawn.
        png_folder: Where every panel is written as a PNG file too; None for nowhere.
        source_options: What the source's storage needs, passed to fsspec.
    """

    selection: Selection = field(default_factory=Selection)
    panels: PanelOptions = field(default_factory=PanelOptions)
    png_folder: Path | None = None
    source_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Preview:
    """What was shown.

    Attributes:
        page: The HTML page.
        cards: The samples, in the order shown.
        problems: Shards whose photos could not be read again.
    """

    page: Path
    cards: tuple[Card, ...]
    problems: tuple[Problem, ...]


def write_preview(manifest: Manifest, page: Path, options: PreviewOptions) -> Preview:
    """Write a contact sheet.

    Args:
        manifest: The job.
        page: Where the HTML page goes; replaced if it is there.
        options: What to show.

    Raises:
        InputError: The selection makes no sense.
        StorageError: The page or a picture cannot be written.
    """
    labels = LabelSet(manifest)
    chosen = choose(labels, options.selection)
    problems: list[Problem] = []
    place = {(one.shard_id, one.index): rank for rank, one in enumerate(chosen)}
    drawn: dict[int, Card] = {}
    for choice, encoded in chosen_photos(manifest, chosen, options.source_options, problems):
        drawn[place[choice.shard_id, choice.index]] = _card(labels, choice, encoded, options)
    cards = tuple(card for _, card in sorted(drawn.items()))
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


def chosen_photos(
    manifest: Manifest,
    chosen: Sequence[Choice],
    source_options: Mapping[str, Any],
    problems: list[Problem],
) -> Iterator[tuple[Choice, bytes | None]]:
    """Every chosen sample once, with its encoded photo where it can be read again.

    Args:
        manifest: The job.
        chosen: The samples.
        source_options: What the source's storage needs.
        problems: Gets an entry for each shard that cannot be read again.
    """
    missing = {(one.shard_id, one.index): one for one in chosen}
    wanted: dict[str, set[int]] = {}
    for one in chosen:
        wanted.setdefault(one.shard_id, set()).add(one.index)

    def note(shard: Shard, error: Exception) -> None:
        problems.append(Problem("source.unreadable", f"{shard.key}: {error}"))

    found = iter_encoded(
        manifest.job,
        manifest.shards(),
        wanted,
        storage_options=source_options,
        on_unreadable=note,
    )
    for shard_id, sample in found:
        choice = missing.pop((shard_id, sample.index), None)
        if choice is not None:
            yield choice, sample.encoded
    for choice in missing.values():
        yield choice, None


def _card(labels: LabelSet, choice: Choice, encoded: bytes | None, options: PreviewOptions) -> Card:
    sample = labels.sample_at(choice.shard_id, choice.index)
    panels = list(sample_panels(sample, decode_photo(encoded), options.panels))
    if options.png_folder is not None:
        for panel in panels:
            name = f"{choice.shard_id[:8]}-{choice.index:06d}-{panel.kind}.png"
            write_png(options.png_folder / name, panel.picture)
    note = "" if choice.score is None else f"lowest mean score {choice.score:.2f}"
    return make_card(sample, labels.shards[choice.shard_id].shard_key, panels, note=note)


def _kinds(cards: Sequence[Card]) -> list[tuple[str, str]]:
    """(kind, title) of the panels on the sheet, in the order of the card that has most."""
    by_size = sorted(cards, key=lambda card: -len(card.pictures))
    return list(dict.fromkeys((one.kind, one.title) for card in by_size for one in card.pictures))


def write_png(path: Path, picture: Any) -> None:
    """Write a (h, w, 3) uint8 RGB picture.

    Raises:
        StorageError: The file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(cv2.imencode(".png", picture[..., ::-1])[1].tobytes())
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error}") from error
