"""Several rows and samples at once: slices, masks, filters, class masks."""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow.dataset as ds
import pytest

from sapiens_batch.errors import InputError
from sapiens_batch.labelset import LabelSet, open_labels
from sapiens_batch.records import Level
from sapiens_batch.storage import open_store
from tests.labelset.built_job import LABELED, NUM_SAMPLES, SHARDS, seg_row, write_job

FIRST, SECOND, UNCOMMITTED = (shard.shard_id for shard in SHARDS)


@pytest.fixture(scope="module")
def labels() -> LabelSet:
    uri = f"memory://{uuid.uuid4().hex}"
    write_job(open_store(uri))
    return open_labels(uri)


def test_a_slice_of_rows_is_stacked(labels: LabelSet) -> None:
    seg = labels.array("seg")
    rows = seg[SECOND, 2:5]
    assert rows.dtype == np.uint8
    np.testing.assert_array_equal(rows, [seg_row(1, index) for index in (2, 3, 4)])


def test_rows_are_chosen_by_mask_or_number(labels: LabelSet) -> None:
    seg = labels.array("seg")
    mask = np.array([True, False, False, True, False, True])
    expected = [seg_row(0, index) for index in (0, 3, 5)]
    np.testing.assert_array_equal(seg[FIRST, mask], expected)
    np.testing.assert_array_equal(seg[FIRST, np.array([0, 3, 5])], expected)
    np.testing.assert_array_equal(seg[FIRST, np.array([-1, 0])], [expected[2], expected[0]])
    assert seg[FIRST, np.zeros(6, bool)].shape == (0, 8, 6)


def test_rows_that_were_not_labeled_are_fill(labels: LabelSet) -> None:
    rows = labels.array("seg")[FIRST, :]
    assert len(rows) == NUM_SAMPLES
    for index in range(NUM_SAMPLES):
        expected = seg_row(0, index) if index in LABELED else np.full((8, 6), 255)
        np.testing.assert_array_equal(rows[index], expected)


def test_a_choice_beyond_the_shard_is_refused(labels: LabelSet) -> None:
    seg = labels.array("seg")
    with pytest.raises(IndexError):
        seg[FIRST, np.array([6])]
    with pytest.raises(IndexError):
        seg[FIRST, np.array([True])]
    with pytest.raises(KeyError, match="not committed"):
        seg[UNCOMMITTED, 0:2]


def test_reading_whole_objects_gives_the_same_rows(labels: LabelSet) -> None:
    plain, whole = labels.array("normal"), labels.array("normal", whole_objects=True)
    for index in LABELED:
        np.testing.assert_array_equal(plain[FIRST, index], whole[FIRST, index])
    assert whole.row(FIRST, 1) is None


def test_samples_come_in_stored_order_with_their_persons(labels: LabelSet) -> None:
    found = [(one.row["shard_id"], one.row["index"], len(one.persons)) for one in labels.samples()]
    assert found == [
        (shard, index, persons)
        for shard in (FIRST, SECOND)
        for index, persons in enumerate([1, 0, 0, 2, 1, 1])
    ]


@pytest.mark.parametrize("wanted", ["num_persons > 1", ds.field("num_persons") > 1])
def test_samples_are_filtered_by_text_or_expression(
    labels: LabelSet, wanted: str | ds.Expression
) -> None:
    found = list(labels.samples(wanted))
    assert [one.row["key"] for one in found] == ["k3", "k3"]
    seg = found[1].array("seg")
    assert seg is not None
    np.testing.assert_array_equal(seg, seg_row(1, 3)[:4, :3])


def test_a_filter_on_the_shard_rules_out_the_others(labels: LabelSet) -> None:
    assert labels.shard_ids(ds.field("shard_id") == SECOND) == [SECOND]
    assert labels.shard_ids() == [FIRST, SECOND]
    assert {one.row["shard_id"] for one in labels.samples(f"shard_id = '{FIRST}'")} == {FIRST}


def test_a_sample_is_found_by_its_place(labels: LabelSet) -> None:
    sample = labels.sample_at(SECOND, 3)
    assert (sample.row["key"], len(sample.persons)) == ("k3", 2)
    with pytest.raises(IndexError, match="sample 6 of a shard of 6"):
        labels.sample_at(SECOND, 6)
    with pytest.raises(KeyError, match="not committed"):
        labels.sample_at(UNCOMMITTED, 0)


def test_rows_of_a_shard_are_read_without_the_others(labels: LabelSet) -> None:
    table = labels.shard_rows(SECOND, Level.PERSON, ds.field("person") > 0, ["key", "person"])
    assert table.to_pylist() == [{"key": "k3", "person": 1}]


def test_a_class_mask_is_drawn_on_the_frame_or_the_source(labels: LabelSet) -> None:
    sample = labels.sample_at(FIRST, 0)
    on_frame = sample.mask([0, 4], source=False)
    assert on_frame is not None
    assert np.argwhere(on_frame).tolist() == [[0, 0], [1, 1]]
    on_source = sample.mask([0, 4])
    assert on_source is not None
    assert on_source.shape == (8, 6)
    assert on_source.sum() == 8
    assert labels.sample_at(FIRST, 1).mask([0]) is None


def test_a_class_without_a_name_is_asked_for_by_number(labels: LabelSet) -> None:
    with pytest.raises(InputError, match=r"has no class 'Hair'"):
        labels.sample_at(FIRST, 0).mask(["Hair"])
