"""The quality card: everything the report knows, and its HTML, Markdown and JSON form.

The three forms are of the same values. A report describes the shards that are committed when it is
made; the job may still be running.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from sapiens_batch.errors import StorageError
from sapiens_batch.labelset import LabelSet
from sapiens_batch.labelset.draw import random_places
from sapiens_batch.protocol.documents import now
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.records import Array
from sapiens_batch.report import tally as gathered
from sapiens_batch.report.brightness import (
    BRIGHTNESS_EDGES,
    CONTRAST_EDGES,
    Brightness,
    brightness,
)
from sapiens_batch.report.drift import Z_LIMIT, Drift, drift
from sapiens_batch.report.speed import Speed, speed
from sapiens_batch.sheets.cards import css_colour
from sapiens_batch.sheets.page import job_facts, write_page


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts between edges; None stands for infinity.

    Attributes:
        edges: One more than there are counts.
        counts: How many values lie in each bin, its lower edge included.
        mean: Mean of the values where it is known.
    """

    edges: tuple[float | None, ...]
    counts: tuple[int, ...]
    mean: float | None = None


@dataclass(frozen=True, slots=True)
class ClassArea:
    """One class of the part masks.

    `mean_share` is of the image, over all images with a mask; `shares` counts images that have it.
    """

    name: str
    colour: str
    num_images: int
    mean_share: float
    shares: Histogram


@dataclass(frozen=True, slots=True)
class Report:
    """The quality card of a job.

    Attributes:
        created: When it was started, ISO 8601.
        made: When this report was made, ISO 8601.
        planned_shards: Shards of the plan.
        damaged_shards: Shards with damage that belongs to no sample.
        counts: Samples by status, and persons.
        reasons: Quarantined samples by reason, most frequent first.
        persons_per_image: Labeled images with 0, 1, … persons; the last entry is for 10 or more.
        scores: Keypoint scores of all persons by keypoint group.
        num_masks: Images with a part mask.
        classes: Classes of the part masks, largest first.
        megapixels: Images by size.
        aspects: Images by width over height.
        brightness: Of a sample of the pictures; None where none were asked for.
        licences: Licence notes of the weights by checkpoint.
    """

    name: str
    created: str
    made: str
    spec_digest: str
    planned_shards: int
    committed_shards: int
    damaged_shards: int
    counts: Mapping[str, int]
    reasons: Mapping[str, int]
    persons_per_image: tuple[int, ...]
    scores: Mapping[str, Histogram]
    num_masks: int
    classes: tuple[ClassArea, ...]
    megapixels: Histogram
    aspects: Histogram
    brightness: Brightness | None
    drift: tuple[Drift, ...]
    speed: Speed
    models: tuple[Mapping[str, Any], ...]
    licences: Mapping[str, str]
    versions: Mapping[str, str]

    @property
    def demo(self) -> bool:
        """Whether random weights made labels."""
        return any(model["demo"] for model in self.models)

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        return asdict(self)


def make_report(
    manifest: Manifest,
    *,
    pictures: int = 200,
    seed: int = 0,
    source_options: Mapping[str, Any] | None = None,
) -> Report:
    """Gather the quality card of a job's committed shards.

    So many `pictures` are looked at for brightness, drawn by `seed`; 0 for none.

    Raises:
        ProtocolError: Stored objects contradict each other.
        StorageError: The job cannot be read.
    """
    labels = LabelSet(manifest)
    found = gathered.tally(labels)
    shards = sorted(labels.shards.values(), key=lambda shard: shard.shard_id)
    names = {shard.shard_id: shard.shard_key for shard in shards}
    reasons: Counter[str] = Counter()
    for shard in shards:
        reasons.update(shard.reasons)
    looked_at = None
    if pictures > 0:
        drawn = random_places(labels, pictures, seed)
        looked_at = brightness(manifest, drawn, source_options or {})
    drifts = (drift(metric, found.moments(metric), names) for metric in found.metrics)
    return Report(
        name=labels.job.name,
        created=labels.job.created,
        made=now(),
        spec_digest=labels.job.spec_digest,
        planned_shards=sum(plan.num_shards for plan in manifest.plans()),
        committed_shards=len(shards),
        damaged_shards=sum(bool(shard.problems) for shard in shards),
        counts=job_facts(labels).counts,
        reasons=dict(reasons.most_common()),
        persons_per_image=tuple(int(count) for count in found.persons_per_image),
        scores=_scores(found),
        num_masks=found.num_masks,
        classes=_classes(labels, found),
        megapixels=histogram(gathered.MEGAPIXEL_EDGES, found.megapixels),
        aspects=histogram(gathered.ASPECT_EDGES, found.aspects),
        brightness=looked_at,
        drift=tuple(one for one in drifts if one is not None),
        speed=speed(manifest, [(shard.shard_id, shard.generation) for shard in shards]),
        models=tuple(_model(task, schema.metadata) for task, schema in labels.schemas.items()),
        licences=dict(labels.job.licences),
        versions=dict(labels.job.versions),
    )


def write_report(report: Report, page: Path) -> tuple[Path, Path, Path]:
    """Write a report as HTML, and beside it as Markdown and JSON; older files are replaced.

    Returns:
        The HTML, Markdown and JSON files.

    Raises:
        StorageError: A file cannot be written.
    """
    values = {
        "title": f"{report.name}: report",
        "report": report,
        "brightness_edges": BRIGHTNESS_EDGES,
        "contrast_edges": CONTRAST_EDGES,
        "z_limit": Z_LIMIT,
        "persons_names": [*map(str, range(gathered.MAX_PERSONS)), f"{gathered.MAX_PERSONS}+"],
        "megapixel_names": _bin_names(gathered.MEGAPIXEL_EDGES),
        "aspect_names": _bin_names(gathered.ASPECT_EDGES),
        "share_names": [f"{100 * edge:g}%" for edge in gathered.SHARE_EDGES[1:]],
    }
    markdown, document = page.with_suffix(".md"), page.with_suffix(".json")
    write_page(page, "report.html", **values)
    write_page(markdown, "report.md", **values)
    try:
        document.write_text(json.dumps(report.to_json(), indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise StorageError(f"{document} cannot be written: {error}; name another file") from error
    return page, markdown, document


def histogram(
    edges: Sequence[float], counts: Sequence[int] | Array, mean: float | None = None
) -> Histogram:
    """A histogram as JSON values: infinite edges become None."""
    finite = tuple(float(edge) if isfinite(edge) else None for edge in edges)
    return Histogram(finite, tuple(int(count) for count in counts), mean)


def _bin_names(edges: Sequence[float]) -> list[str]:
    """Names of bins by their upper edge; the last is open."""
    return [f"{edge:g}" if isfinite(edge) else f"{edges[-2]:g}+" for edge in edges[1:]]


def _scores(found: gathered.Tally) -> dict[str, Histogram]:
    return {
        group: histogram(
            gathered.SCORE_EDGES, counts, found.score_sums[group] / max(1, int(counts.sum()))
        )
        for group, counts in found.scores.items()
    }


def _classes(labels: LabelSet, found: gathered.Tally) -> tuple[ClassArea, ...]:
    if not found.num_masks:
        return ()
    metadata = labels.schemas["seg"].metadata
    number = len(found.class_images)
    names = metadata.get("classes") or [f"class {index}" for index in range(number)]
    palette = metadata.get("palette_rgb") or [[128, 128, 128]] * number
    shares = found.class_share_sums / found.num_masks
    return tuple(
        ClassArea(
            name=names[index].replace("_", " "),
            colour=css_colour(palette[index]),
            num_images=int(found.class_images[index]),
            mean_share=float(shares[index]),
            shares=histogram(gathered.SHARE_EDGES, found.class_histograms[index]),
        )
        for index in sorted(range(number), key=lambda index: -shares[index])
    )


def _model(task: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What labeled a task."""
    names = ("model", "revision", "weights_sha256", "architecture", "licence")
    told = {name: str(metadata.get(name) or "") for name in names}
    return {"task": task, **told, "demo": bool(metadata.get("demo"))}
