"""Which boxes become persons, and what is said about the others."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from sapiens_batch.errors import SampleError
from sapiens_batch.job.spec import PersonsSpec
from sapiens_batch.persons import make_person_finder
from sapiens_batch.persons.base import keep_usable
from sapiens_batch.records import Array, Sample

IMAGE = np.zeros((100, 200, 3), np.uint8)
NAN, INF = float("nan"), float("inf")


def sample(boxes: Array | None, scores: Array | None = None) -> Sample:
    return Sample("key", 0, b"", boxes, scores)


def test_given_boxes_are_kept_in_order_with_unknown_scores() -> None:
    boxes = np.array([[10, 20, 30, 40], [-5.5, -5, 400, 300]], np.float32)
    persons = make_person_finder(PersonsSpec()).find(sample(boxes), IMAGE)
    np.testing.assert_array_equal(persons.boxes, boxes)
    assert persons.boxes.dtype == persons.scores.dtype == np.float32
    assert np.isnan(persons.scores).all()
    assert persons.problems == ()
    assert not persons.truncated


@pytest.mark.parametrize("boxes", [None, np.empty((0, 4), np.float32), np.empty(0, np.float32)])
def test_no_boxes_mean_nobody(boxes: Array | None) -> None:
    persons = make_person_finder(PersonsSpec()).find(sample(boxes), IMAGE)
    assert persons.boxes.shape == (0, 4)
    assert persons.scores.shape == (0,)


@pytest.mark.parametrize(
    "box",
    [
        [5, 5, 0, 0],
        [5, 5, -3, 10],
        [5, 5, 10, -3],
        [NAN, 5, 10, 10],
        [5, 5, INF, 10],
        [200, 5, 10, 10],
        [5, 100, 10, 10],
        [-10, 5, 10, 10],
        [5, -10, 10, 10],
    ],
)
def test_a_degenerate_box_is_dropped_and_named_and_costs_its_neighbours_nothing(
    box: list[float],
) -> None:
    good = [10, 20, 30, 40]
    boxes = np.array([good, box, good], np.float32)
    scores = np.array([0.5, 0.9, 0.25], np.float32)
    persons = make_person_finder(PersonsSpec()).find(sample(boxes, scores), IMAGE)
    np.testing.assert_array_equal(persons.boxes, np.array([good, good], np.float32))
    np.testing.assert_array_equal(persons.scores, np.array([0.5, 0.25], np.float32))
    (problem,) = persons.problems
    assert problem.reason == "person.degenerate_box"
    assert "box 1" in problem.message
    assert "200 x 100 px" in problem.message


def test_of_too_many_boxes_the_best_stay_in_their_order() -> None:
    boxes = np.array([[x, 0, 10, 10] for x in range(5)], np.float32)
    scores = np.array([0.2, NAN, 0.9, 0.9, 0.5], np.float32)
    persons = keep_usable(boxes, scores, (100, 200), max_persons=3)
    np.testing.assert_array_equal(persons.boxes[:, 0], [2, 3, 4])
    assert persons.truncated


def test_without_scores_the_first_boxes_stay() -> None:
    boxes = np.array([[x, 0, 10, 10] for x in range(5)], np.float32)
    persons = keep_usable(boxes, None, (100, 200), max_persons=2)
    np.testing.assert_array_equal(persons.boxes[:, 0], [0, 1])
    assert persons.truncated


def test_degenerate_boxes_do_not_count_as_too_many() -> None:
    boxes = np.array([[0, 0, 0, 0], [1, 0, 10, 10]], np.float32)
    persons = keep_usable(boxes, None, (100, 200), max_persons=1)
    assert len(persons.boxes) == 1
    assert not persons.truncated


@pytest.mark.parametrize(
    ("boxes", "scores"), [(np.zeros((2, 5)), None), (np.zeros(4), None), (np.ones((2, 4)), [1.0])]
)
def test_boxes_of_another_shape_quarantine_the_sample(
    boxes: Array, scores: list[float] | None
) -> None:
    with pytest.raises(SampleError) as caught:
        keep_usable(boxes, None if scores is None else np.array(scores), (9, 9), max_persons=1)
    assert caught.value.reason == "person.malformed_boxes"


def test_the_whole_image_is_one_person_where_the_job_says_so() -> None:
    finder = make_person_finder(PersonsSpec.model_validate({"from": "whole_image"}))
    persons = finder.find(sample(np.array([[1, 2, 3, 4]], np.float32)), IMAGE)
    np.testing.assert_array_equal(persons.boxes, [[0, 0, 200, 100]])
    assert np.isnan(persons.scores).all()


@pytest.mark.parametrize("origin", ["source", "whole_image"])
def test_finders_travel_to_workers(origin: str) -> None:
    finder = make_person_finder(PersonsSpec.model_validate({"from": origin, "max_persons": 7}))
    assert pickle.loads(pickle.dumps(finder)).max_persons == 7
