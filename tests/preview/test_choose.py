"""Which samples a sheet shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapiens_batch.errors import InputError
from sapiens_batch.labelset import LabelSet, open_labels
from sapiens_batch.preview import Order, Selection, choose
from tests.labeled_job import make_labeled_job


@pytest.fixture(scope="module")
def labels(job: Path) -> LabelSet:
    return open_labels(str(job))


def keys(labels: LabelSet, selection: Selection) -> list[str]:
    return [
        labels.sample_at(one.shard_id, one.index).row["key"] for one in choose(labels, selection)
    ]


def test_the_same_seed_draws_the_same_samples(labels: LabelSet) -> None:
    first = keys(labels, Selection(count=10, seed=3))
    assert first == keys(labels, Selection(count=10, seed=3))
    assert first != keys(labels, Selection(count=10, seed=4))
    assert len(set(first)) == 10


def test_a_larger_draw_begins_with_the_smaller_one(labels: LabelSet) -> None:
    assert keys(labels, Selection(count=20))[:5] == keys(labels, Selection(count=5))


def test_no_more_samples_are_chosen_than_there_are(labels: LabelSet) -> None:
    assert len(keys(labels, Selection(count=1000))) == 40


def test_a_filter_leaves_only_what_it_says(labels: LabelSet) -> None:
    for choice in choose(labels, Selection(wanted="num_persons = 2")):
        assert labels.sample_at(choice.shard_id, choice.index).row["num_persons"] == 2


def test_a_reason_stands_for_all_that_begin_with_it(labels: LabelSet) -> None:
    found = keys(labels, Selection(reasons=("decode",)))
    assert sorted(found) == ["sample-000007", "sample-000013"]
    assert keys(labels, Selection(reasons=("decode.truncated",))) == ["sample-000007"]
    assert keys(labels, Selection(reasons=("decode.trunc",))) == []


def test_worst_first_orders_by_the_lowest_mean_score_of_a_person(labels: LabelSet) -> None:
    chosen = choose(labels, Selection(count=5, order=Order.WORST))
    scores = [one.score for one in chosen]
    assert scores == sorted(scores)
    every = [
        min(float(person["keypoint_scores"].mean()) for person in sample.persons)
        for sample in labels.samples("num_persons > 0")
    ]
    assert scores == pytest.approx(sorted(every)[:5], abs=1e-6)


def test_worst_first_obeys_the_filter(labels: LabelSet) -> None:
    chosen = choose(labels, Selection(order=Order.WORST, wanted="num_persons = 2"))
    assert all(labels.sample_at(one.shard_id, one.index).row["num_persons"] == 2 for one in chosen)


def test_stored_order_is_the_order_of_shards_and_indices(labels: LabelSet) -> None:
    chosen = choose(labels, Selection(count=30, order=Order.STORED))
    places = [(one.shard_id, one.index) for one in chosen]
    assert places == sorted(places)


def test_worst_first_without_poses_is_refused(tmp_path: Path) -> None:
    path = make_labeled_job(tmp_path / "job", num_samples=4, row_size=(16, 12), tasks=("seg",))
    with pytest.raises(InputError, match="no task `pose`"):
        choose(open_labels(str(path)), Selection(order=Order.WORST))


def test_a_sheet_of_no_samples_is_refused(labels: LabelSet) -> None:
    with pytest.raises(InputError, match="at least one"):
        choose(labels, Selection(count=0))
