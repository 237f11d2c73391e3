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
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.records import Problem, Shard
from sapiens_batch.sheets.cards import Card, decode_photo, make_card
from sapiens_batch.sheets.page import job_facts, write_page
from sapiens_batch.sheets.panels import PanelOptions, sample_panels
from sapiens_batch.sources.lookup import iter_encoded

_SIDE_PX: Final = 360

Place = tuple[str, int]


def write_sheet(
    manifest: Manifest,
    labels: LabelSet,
    result: pa.Table,
    page: Path,
    *,
    title: str,
    source_options: Mapping[str, Any] | None = None,
) -> None:
    """Write the sheet of a search.

    Args:
        manifest: The job.
        labels: Its labels.
        result: What `SearchIndex.search` found.
        page: Where the page goes; replaced if it is there.
        title: What was searched for.
        source_options: What the source's storage needs, passed to fsspec.

    Raises:
        StorageError: The page cannot be written.
    """
    rows = result.to_pylist()
    best = {(row["shard_id"], row["index"]): row["similarity"] for row in reversed(rows)}
    places = list(dict.fromkeys((row["shard_id"], row["index"]) for row in rows))
    problems: list[Problem] = []
    cards = _cards(manifest, labels, best, source_options or {}, problems)
    write_page(
        page,
        "search.html",
        title=f"{labels.job.name}: {title}",
        heading=title,
        facts=job_facts(labels),
        cards=[cards[place] for place in places],
        problems=problems,
    )


def _cards(
    manifest: Manifest,
    labels: LabelSet,
    similarities: Mapping[Place, float],
    source_options: Mapping[str, Any],
    problems: list[Problem],
) -> dict[Place, Card]:
    wanted: dict[str, set[int]] = {}
    for shard_id, index in similarities:
        wanted.setdefault(shard_id, set()).add(index)

    def note(shard: Shard, error: Exception) -> None:
        problems.append(Problem("source.unreadable", f"{shard.key}: {error}"))

    found = iter_encoded(
        manifest.job,
        manifest.shards(),
        wanted,
        storage_options=source_options,
        on_unreadable=note,
    )
    cards = {
        (shard_id, sample.index): _card(
            labels, (shard_id, sample.index), similarities, sample.encoded
        )
        for shard_id, sample in found
    }
    for place in similarities.keys() - cards.keys():
        cards[place] = _card(labels, place, similarities, None)
    return cards


def _card(
    labels: LabelSet, place: Place, similarities: Mapping[Place, float], encoded: bytes | None
) -> Card:
    sample = labels.sample_at(*place)
    options = PanelOptions(side=_SIDE_PX, kinds=frozenset({"photo"}))
    photo = sample_panels(sample, decode_photo(encoded), options)
    shard = labels.shards[place[0]].shard_key
    return make_card(sample, shard, photo, note=f"similarity {similarities[place]:.3f}")
