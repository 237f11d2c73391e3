"""Two jobs over the same corpus, sample by sample.

Tells which sample of one job is which of the other; comparing labels is left to the caller. A
sample is joined with at most one other, and what has no partner is counted, never dropped silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from sapiens_batch.errors import InputError
from sapiens_batch.labelset.draw import Place
from sapiens_batch.labelset.filters import Filter, as_expression
from sapiens_batch.labelset.labels import LabelSet
from sapiens_batch.labelset.sample import SampleLabels

JoinedBy = Literal["key", "place"]


@dataclass(frozen=True, slots=True)
class JoinedLabels:
    """Samples that two jobs have in common.

    Attributes:
        places: `key, shard_id, index, shard_id_second, index_second` of the common samples, in the
            stored order of the first job.
    """

    first: LabelSet
    second: LabelSet
    places: pa.Table
    num_only_first: int
    num_only_second: int

    def __len__(self) -> int:
        return int(self.places.num_rows)

    def samples(self) -> Iterator[tuple[SampleLabels, SampleLabels]]:
        """Both jobs' labels of every common sample, shard by shard of the first job."""
        for shard_id in pc.unique(self.places["shard_id"]).to_pylist():
            partners = {
                row["index"]: (row["shard_id_second"], row["index_second"])
                for row in self.places.filter(ds.field("shard_id") == shard_id).to_pylist()
            }
            others = _samples_at(self.second, partners.values())
            for sample in self.first.samples(ds.field("shard_id") == shard_id):
                place = partners.get(sample.row["index"])
                if place is not None:
                    yield sample, others[place]


def join_labels(
    first: LabelSet, second: LabelSet, *, by: JoinedBy = "key", wanted: Filter | None = None
) -> JoinedLabels:
    """Find the samples that two jobs have in common.

    Args:
        first: One job.
        second: The other.
        by: `key`: samples with the same key, which must be unique in both jobs. `place`: samples at
            the same position of the same version of a shard.
        wanted: Which rows of the first job's `images`.

    Raises:
        InputError: Keys are not unique, or the text is no filter.
    """
    mine = _places(first, wanted)
    other = _places(second, None)
    on = ["key"] if by == "key" else ["shard_id", "index"]
    if by == "key":
        _check_unique(first, mine)
        _check_unique(second, other)
    else:
        other = other.drop_columns(["key"])
        other = other.append_column("shard_id_second", other["shard_id"])
        other = other.append_column("index_second", other["index"])
    joined = mine.join(other, on, join_type="inner", right_suffix="_second")
    joined = joined.sort_by([("shard_id", "ascending"), ("index", "ascending")])
    joined = joined.select(["key", "shard_id", "index", "shard_id_second", "index_second"])
    num = joined.num_rows
    return JoinedLabels(first, second, joined, mine.num_rows - num, other.num_rows - num)


def _samples_at(labels: LabelSet, places: Iterable[Place]) -> dict[Place, SampleLabels]:
    wanted: dict[str, list[int]] = {}
    for shard_id, index in places:
        wanted.setdefault(shard_id, []).append(index)
    arrays = labels.arrays(whole_objects=True)
    return {
        (shard_id, int(sample.row["index"])): sample
        for shard_id, indices in sorted(wanted.items())
        for sample in labels.shard_samples(shard_id, ds.field("index").isin(indices), arrays)
    }


def _places(labels: LabelSet, wanted: Filter | None) -> pa.Table:
    expression = as_expression(wanted, labels.images.schema)
    return labels.images.to_table(columns=["key", "shard_id", "index"], filter=expression)


def _check_unique(labels: LabelSet, places: pa.Table) -> None:
    counts = places.group_by("key").aggregate([("key", "count")])
    repeated = counts.filter(ds.field("key_count") > 1)
    if repeated.num_rows:
        examples = ", ".join(repr(key) for key in repeated["key"].slice(0, 3).to_pylist())
        raise InputError(
            f"{labels}: {repeated.num_rows} keys belong to several samples, for example "
            f"{examples}; join by place instead"
        )
