"""An HTML sheet of search results: photos, best first, with how similar they are.

Drawing and the page's looks come from `sheets`. A photo that cannot be read again is left out and
its sample shown without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from sapiens_batch.labelset import LabelSet
from sapiens_batch.labelset.draw import Place
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.records import Array, Problem
from sapiens_batch.sheets.cards import Card, make_card
from sapiens_batch.sheets.page import job_facts, write_page
from sapiens_batch.sheets.panels import PanelOptions, sample_panels
from sapiens_batch.sheets.photos import iter_photos

_SIDE_PX: Final = 360


def write_sheet(
    manifest: Manifest,
    labels: LabelSet,
    result: pa.Table,
    page: Path,
    *,
    title: str,
    source_options: Mapping[str, Any] | None = None,
) -> None:
    """Write the sheet of what `SearchIndex.search` found; an older page is replaced.

    Raises:
        StorageError: The page cannot be written.
    """
    best: dict[Place, float] = {}
    for row in result.to_pylist():
        best.setdefault((row["shard_id"], row["index"]), row["similarity"])
    problems: list[Problem] = []
    cards = {
        place: _card(labels, place, best[place], photo)
        for place, photo in iter_photos(manifest, best, source_options, problems)
    }
    write_page(
        page,
        "search.html",
        title=f"{labels.job.name}: {title}",
        heading=title,
        facts=job_facts(labels),
        cards=[cards[place] for place in best],
        problems=problems,
    )


def _card(labels: LabelSet, place: Place, similarity: float, photo: Array | None) -> Card:
    sample = labels.sample_at(*place)
    options = PanelOptions(side=_SIDE_PX, kinds=frozenset({"photo"}))
    panels = sample_panels(sample, photo, options)
    shard = labels.shards[place[0]].shard_key
    return make_card(sample, shard, panels, note=f"similarity {similarity:.3f}")
