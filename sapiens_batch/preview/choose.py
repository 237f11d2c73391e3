"""Which samples a sheet shows: by filter, by reason; at random, worst first, or as stored.

Walks over the tables shard by shard and keeps the best few, so that memory is bounded by one
shard's rows. The same selection of the same labels gives the same samples.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

import numpy as np
import pyarrow.compute as pc
import pyarrow.dataset as ds

from sapiens_batch.errors import InputError
from sapiens_batch.labelset import LabelSet
from sapiens_batch.labelset.draw import iter_places, random_places
from sapiens_batch.labelset.filters import Filter, as_expression
from sapiens_batch.records import Level
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
        count: At most so many.
        order: Which come first.
        wanted: Rows of `images`; None for all.
        reasons: Only samples that are quarantined for one of these; a name such as `decode` stands
            for all reasons that begin with `decode.`.
        seed: Of the random order.
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
        shard_id: Its shard.
        index: Its position in the shard.
        score: Lowest mean keypoint score of its persons, where that ranked it.
    """

    shard_id: str
    index: int
    score: float | None = None


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
